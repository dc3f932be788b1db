"""What `init` randomises, each from a sub-stream keyed by purpose."""

from __future__ import annotations

from typing import NamedTuple

from flax import struct
from jax import Array

from powerzoo_jax.base.random import Purpose, integers, purpose_key, uniform


@struct.dataclass(kw_only=True)
class Starts:
    """Where episodes of a lane may begin, as rows of the bank; padded to one size for all splits.

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


def draw_episode(key: Array, starts: Starts, soc_low: Array, soc_high: Array) -> Draw:
    """Draw the day, the paired price day and the states of charge (uniform in [soc_low, soc_high])."""
    day = integers(purpose_key(key, Purpose.DAY), (), 0, starts.n_start)
    pair = integers(purpose_key(key, Purpose.PAIRED_DAY), (), 0, starts.pair_count[day])
    unit = uniform(purpose_key(key, Purpose.SOC), soc_low.shape, soc_low.dtype)
    return Draw(
        load_row=starts.load_row[day], price_row=starts.price_row[day, pair], soc=soc_low + unit * (soc_high - soc_low)
    )
