"""What is bundled: signals, units, licences and clocks of each data set."""

from __future__ import annotations

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.series import DatasetInfo, Signal

CURRENCY_NOTE = "EUR and USD are both read as $, one to one: rewards of different price sets are not comparable."


def _simbench_signals() -> tuple[Signal, ...]:
    lv = ("lv_rural1", "lv_rural2", "lv_rural3", "lv_semiurb4", "lv_semiurb5", "lv_urban6")
    mv = ("mv_rural", "mv_semiurb", "mv_urban", "mv_comm")
    active = [Signal(f"load.{c}_pu", f"{c}_pload", "pu") for c in (*lv, *mv, "mv_add1", "mv_add2")]
    reactive = [Signal(f"load_reactive.{c}_pu", f"{c}_qload", "pu") for c in mv]
    solar = [Signal(f"solar.{c.lower()}_pu", c, "pu") for c in ("PV1", "PV3", "PV5")]
    wind = [Signal(f"wind.{c.lower()}_pu", c, "pu") for c in ("WP4", "WP7", "WP10")]
    return (*active, *reactive, *solar, *wind)


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo(
            name="simbench_2016",
            title="SimBench load, solar and wind profiles, Germany 2016",
            licence="ODbL-1.0",
            step_minutes=15,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=_simbench_signals(),
            default="load.mv_semiurb_pu",
            sha256="47f1f57e8135f2c429174586e076530449c66adf26b5f1dea90d3d9bc502670a",
        ),
        DatasetInfo(
            name="de_smard_2018",
            title="Day-ahead price, Germany and Luxembourg 2018 (with Austria to 30 September)",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=(Signal("price.day_ahead_per_mwh", "price_eur_per_mwh", "EUR/MWh"),),
            default="price.day_ahead_per_mwh",
            sha256="b1550be484c7e06f497aa983f77937260103c025fbd17de866e0ef859cc39e5f",
            currency_note=CURRENCY_NOTE,
        ),
        DatasetInfo(
            name="ercot_dam_2021_2022",
            title="ERCOT day-ahead hub prices 2021-2022",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=-360,
            civil_zone="America/Chicago",
            signals=tuple(
                Signal(f"price.day_ahead_{hub.lower()}_per_mwh", hub, "USD/MWh")
                for hub in ("HB_HOUSTON", "HB_NORTH", "HB_SOUTH", "HB_WEST")
            ),
            default="price.day_ahead_hb_houston_per_mwh",
            sha256="b0a844bce34c322d9e117a88fee7bb48992af27508b3521aeddea979f454e9b9",
            currency_note=CURRENCY_NOTE,
        ),
    )
}


def list_datasets() -> tuple[str, ...]:
    """Names of the bundled data sets."""
    return tuple(sorted(DATASETS))


def get_info(name: str) -> DatasetInfo:
    """Manifest entry of a data set; raises ValueError for an unknown name."""
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, DATASETS))
    return DATASETS[name]
