"""The page docs/data.md, made from the bundled data: `python -m tools.data.report [--write] [FILE]`.

Without --write it compares the page with FILE and exits 1 when they differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.data.clock import local_days
from powerzoo_jax.data.library import load_dataset
from powerzoo_jax.data.manifest import list_datasets
from powerzoo_jax.data.series import EVENTS, Series
from powerzoo_jax.data.splits import find_overlap, get_calendar, label_days, list_splits, span, split_days, split_rows
from tools.builder import run_page

PAGE = Path("docs") / "data.md"
COMMAND = "python -m tools.data.report --write"
SEASONS = {"winter": (12, 1, 2), "spring": (3, 4, 5), "summer": (6, 7, 8), "autumn": (9, 10, 11)}
HORIZONS = (1, 7)

HEAD = f"""\
# Data

The package ships measured series of load, price, weather and charging. They are loaded with NumPy alone.
`powerzoo_jax/data/bundled/PROVENANCE.md` says where each file comes from and what was repaired,
`powerzoo_jax/DATA_LICENSES.md` holds the licences.

```python
from powerzoo_jax.data import load_signals

demand = load_signals("load.actual_mw", start_date="2019-07-01", end_date="2019-07-07", step_minutes=30)
print(demand.time_utc[0], demand.column("load.actual_mw").max(), demand.d_ref("load.actual_mw"))
```

Time is UTC inside. A day follows the local standard time of its set, so it always has 24 hours; days of 23 and 25 hours
exist only in the local time of the sources. Coarser steps are means. For finer steps prices are repeated and everything
else is interpolated.

A task has one primary data set, whose days it plays. Each secondary set supplies the same month and day, from the same
split of its own calendar. If it has no such day, a day of that month is drawn, or of the nearest month that has any.

## Your own series

A table, CSV or `.xlsx`, has a column `time` (start of the interval) and columns such as `load_mw`, `load_kw`,
`load_kwh`, `load_pu`, `solar_mw`, `wind_mw`, `price_eur_per_mwh`: the ending is the unit. Files of meters are read as
they are: `read_csv` has keywords for their names, their clock and their gaps ([Bring data](howto/own_data.md)).
Anything else is refused with the line, the value and the remedy. Your file is split like a single year: days 1-20 of
each month train, 21-24 validate, 26-end test; `start_date` and `end_date` replace that.

```python
import jax
import powerzoo_jax as pz

sim = pz.make("battery_arbitrage", case="my_feeder.m", battery_bus_ids=(3,), data_source="my_load.csv", split="test")
state, obs = sim.init(jax.random.key(0))
out = jax.jit(sim.step)(state, jax.numpy.ones((1, 1)))
```

Official files: `data_source="neso:demanddata_2023.csv"`; `powerzoo_jax.data.adapters.list_official()` names the
sources. Stamps in local time: `data_source=read_csv("my_load.csv", zone="Europe/Madrid")`.

`{COMMAND}` writes this page.
"""


def render() -> str:
    """The whole page."""
    sets = {name: load_dataset(name) for name in list_datasets()}
    parts = [HEAD, *_overview(sets), *_no_overlap(sets), *_scaling(sets)]
    for name, data in sets.items():
        parts += [f"## {name}", "", *_statistics(name, data), ""]
    return "\n".join(parts).rstrip() + "\n"


def _overview(sets: dict[str, Series]) -> Iterator[str]:
    yield "## Sets\n"
    yield "| set | what | region | step [min] | local standard time | rows | repaired | licence |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, data in sets.items():
        meta = data.meta
        step = "events" if meta.step_minutes == EVENTS else meta.step_minutes
        yield (
            f"| {name} | {meta.title} | {meta.region} | {step} | UTC{meta.offset_minutes / 60:+g} "
            f"| {len(data.time_utc)} | {len(data.repaired)} | {meta.licence} |"
        )
    yield ""


def _no_overlap(sets: dict[str, Series]) -> Iterator[str]:
    yield "## No day is in two splits\n"
    yield (
        "Days of each split, days that two splits share, days that no split uses, and the seasons of each split, "
        "counted\nfrom the calendars. Sets of a single year use whole ISO weeks for episodes over four days.\n"
    )
    yield "| set | horizon [days] | days by split | shared | unused | seasons |"
    yield "|---|---|---|---|---|---|"
    for name in sets:
        for horizon in HORIZONS:
            groups = {split: split_days(name, split, horizon) for split in list_splits(name)}
            # a calendar of dates is recounted from its rows: a day in two of them would carry the last label
            spans = [span(first, last) for _, first, last in get_calendar(name).ranges]
            shared, unused = (
                len(find_overlap(spans or list(groups.values()))),
                int((label_days(name, horizon) == "").sum()),
            )
            days = ", ".join(f"{split} {len(found)}" for split, found in groups.items())
            yield f"| {name} | {horizon} | {days} | {shared} | {unused} | {_seasons(groups)} |"
    yield ""


def _seasons(groups: dict[str, np.ndarray]) -> str:
    found = {}
    for split, days in groups.items():
        months = {day.month for day in days.tolist()}
        found[split] = [season for season, of in SEASONS.items() if months & set(of)]
    if all(len(seasons) == len(SEASONS) for seasons in found.values()):
        return "all four in each"
    return "; ".join(f"{split}: {', '.join(seasons)}" for split, seasons in found.items())


def _scaling(sets: dict[str, Series]) -> Iterator[str]:
    yield "## Scaling constants\n"
    yield (
        "One constant for each signal, the same for every split: load = max_load_ratio * load_scale * peak * "
        "D(t)\n/ D_ref. `min_load_ratio` maps D_min to that ratio.\n"
    )
    yield "| set | signal | unit | D_ref | D_min |"
    yield "|---|---|---|---|---|"
    for name, data in sets.items():
        for signal in data.meta.signals:
            if data.meta.step_minutes != EVENTS and not signal.name.startswith("price."):
                low, high = data.d_min(signal.name), data.d_ref(signal.name)
                yield f"| {name} | {signal.name} | {signal.unit} | {high:.7g} | {low:.7g} |"
    yield ""


def _statistics(name: str, data: Series) -> Iterator[str]:
    yield "| signal | unit | split | days | steps repaired | mean | std | min | max |"
    yield "|---|---|---|---|---|---|---|---|---|"
    day = local_days(data.time_utc, data.meta.offset_minutes)
    rows_of = {split: split_rows(data, split) for split in list_splits(name)}
    for signal in data.meta.signals:
        for split, rows in rows_of.items():
            values = data.column(signal.name)[rows].astype(np.float64)
            repaired = int(rows[data.repaired].sum())
            figures = " | ".join(f"{x:.5g}" for x in (values.mean(), values.std(), values.min(), values.max()))
            yield (
                f"| {signal.name} | {signal.unit} | {split} | {len(np.unique(day[rows]))} | {repaired} | {figures} |"
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the page; returns the exit status."""
    return run_page(render, PAGE, COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
