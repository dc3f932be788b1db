"""Exogenous series of a feeder: the two tables that every lane reads, their columns, and the draw of an episode.

`draw_episode` randomises what `init` needs, each quantity from a sub-stream keyed by purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.random import Purpose, integers, purpose_key, uniform
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.data.bank import LOAD_FIELDS
from powerzoo_jax.devices.datacenter import INFER as INFER
from powerzoo_jax.devices.datacenter import OUTDOOR as OUTDOOR
from powerzoo_jax.devices.renewable import PLANT as PLANT
from powerzoo_jax.envs.observe import field_block


@struct.dataclass(kw_only=True)
class EpisodeStarts:
    """Start rows of the episodes of a lane in the bank; padded to one size for all splits.

    load_row:    (S,)    int32
    n_start:     ()      int32  real entries of load_row
    price_row:   (S, K)  int32  candidates for the price series of each start
    pair_count:  (S,)    int32  real entries of each row of price_row
    """

    load_row: Array
    n_start: Array
    price_row: Array
    pair_count: Array


class Draw(NamedTuple):
    """One drawn episode: first bank rows () int32 and initial state of charge (G,)."""

    load_row: Array
    price_row: Array
    soc: Array


def draw_episode(key: Array, starts: EpisodeStarts, soc_low: Array, soc_high: Array) -> Draw:
    """Draw the day, the paired price day and the states of charge (uniform in [soc_low, soc_high])."""
    day = integers(purpose_key(key, Purpose.DAY), (), 0, starts.n_start)
    pair = integers(purpose_key(key, Purpose.PAIRED_DAY), (), 0, starts.pair_count[day])
    unit = uniform(purpose_key(key, Purpose.SOC), soc_low.shape, soc_low.dtype)
    return Draw(
        load_row=starts.load_row[day], price_row=starts.price_row[day, pair], soc=soc_low + unit * (soc_high - soc_low)
    )


FACTOR, SIN, COS, AHEAD_HI, AHEAD_LO = (LOAD_FIELDS.index(name) for name in LOAD_FIELDS)
PRICE, SIGNAL, MEAN_AHEAD = 0, 1, -1  # columns of price_rows; the forecasts stand between SIGNAL and MEAN_AHEAD
CLOCK_FIELDS = ("time_of_day", "hour_norm", "is_peak", "is_offpeak")
CLOCK = field_block(
    "clock",
    (
        Field("time_sin", "1", -1, 1, lambda scene: scene.row[SIN]),
        Field("time_cos", "1", -1, 1, lambda scene: scene.row[COS]),
    ),
)
"""Time of day as two observed fields."""
SHAPE, SHAPE_HI, SHAPE_LO = "shape", "shape_ahead_hi", "shape_ahead_lo"


@struct.dataclass(kw_only=True)
class SeriesBank:
    """Exogenous series shared by all lanes.

    load_rows:   (R_l, F_l)  one row a step; LOAD_FIELDS of `data.Bank`, then what `LoadColumns` names
    price_rows:  (R_p, F_p)  columns as in `data.Bank`
    price_sums:  (R_p, 2)    [1] sum of the prices of all rows before, in the scale of the price signal but not
                             clipped, in two parts; None where no observation shows a mean of them
    """

    load_rows: Array
    price_rows: Array
    price_sums: Array | None = None


class LoadColumns(NamedTuple):
    """Names of the columns of `load_rows`, in order; static, hashable.

    load_forecast_k       load_factor k steps ahead
    CLOCK_FIELDS          of the step, where agents have fields of their own
    shape_k               load factor [1] of every further load shape, with its running sums shape_ahead_hi/lo_k
    plant_cf_k            capacity factor [1] of every plant
    infer_util, outdoor_c inference utilisation [1] and temperature [degC] of data centres
    """

    names: tuple[str, ...] = LOAD_FIELDS

    def at(self, name: str) -> int:
        """Position of one column."""
        return self.names.index(name)

    def run(self, prefix: str) -> slice:
        """Positions of `prefix`_1, `prefix`_2, ..., which stand side by side."""
        numbered = [k for k, name in enumerate(self.names) if name.rpartition("_")[0] == prefix]
        return slice(numbered[0], numbered[-1] + 1) if numbered else slice(0, 0)

    def factors(self, row: Array) -> Array:
        """Load factor () of the only shape, or (Z,) of all."""
        more = self.run(SHAPE)
        return jnp.concatenate([row[FACTOR : FACTOR + 1], row[more]]) if more.stop else row[FACTOR]

    def level(self, row: Array, share: Array | None) -> Array:
        """Load factor of each place at a bank row: () for all, or by the shares (Z, places) of the shapes."""
        return spread(self.factors(row), share)

    def load_ahead(self, here: Array, end: Array) -> Array:
        """Sum of load factors from row `here` to the row before `end`: () of the only shape, or (Z,) of all."""
        first = load_ahead(here, end)
        high, low = self.run(SHAPE_HI), self.run(SHAPE_LO)
        if not high.stop:
            return first
        return jnp.concatenate([first[None], (end[high] - here[high]) + (end[low] - here[low])])


def step_row(rows: Array, first: Array, t: Array, horizon: Array) -> Array:
    """Row (F,) of step t () of an episode that begins at row `first` (); past the end, that of the last step."""
    return rows[first + jnp.minimum(t, horizon - 1)]


def current_row(state: Any, params: Any) -> Array:
    """Row (F,) of the coming step of a family whose episodes read `bank.load_rows` from `load_row` on.

    Entries are in the units of their columns.
    """
    return step_row(params.bank.load_rows, state.load_row, state.t, params.horizon)


def remaining_load(state: Any, params: Any) -> Array:
    """Sum () of the loads of the coming and all later steps of such a family, in the unit of its rows."""
    end = params.bank.load_rows[state.load_row + params.horizon]
    return load_ahead(current_row(state, params), end)


def load_ahead(here: Array, end: Array) -> Array:
    """Sum () of the loads from row `here` (F,) to the row before `end` (F,), by their running sums in two parts."""
    return (end[AHEAD_HI] - here[AHEAD_HI]) + (end[AHEAD_LO] - here[AHEAD_LO])


def spread(factors: Array, share: Array | None) -> Array:
    """Load factor of each place: factors () for all, or (Z,) by the shares (Z, places) of the shapes.

    Written as a sum over the few shapes, which fuses with what follows.
    """
    if share is None:
        return factors
    total = factors[0] * share[0]
    for k in range(1, share.shape[0]):
        total = total + factors[k] * share[k]
    return total
