"""Forecasts of a daily series from what has been seen of it: conditional means of a normal law fitted on train days.

With x the periods of yesterday, today and tomorrow, k those seen and u the others,
E[x_u | x_k] = mu_u + S_uk (S_kk + r I)^-1 (x_k - mu_k): the seasonal mean where nothing is known, and a ridge
regression on all that is known elsewhere. Source: Hastie, Tibshirani, Friedman, The Elements of Statistical Learning,
2nd ed., section 3.4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matvec
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks import make

RIDGE = 0.02  # of the mean variance of a period; 0.005 and 0.08 forecast the prices of the val days no better
# keywords that replace the calendar of the splits, or add days that nobody has recorded
WINDOW = ("start_date", "end_date", "augment", "augment_years", "augment_block_hours")


@struct.dataclass(kw_only=True)
class DailyForecast:
    """Fitted forecast of a series with `per_day` periods a day, over `back` days before today and `ahead` after it.

    mean:  (N,)            N = (back + 1 + ahead) per_day periods of the window
    gain:  (F, N+1, N, N)  by whether the days before are known, and by how many periods of the window are; zero in the
                           columns of unknown periods
    """

    mean: Array
    gain: Array
    per_day: int = struct.field(pytree_node=False)
    back: int = struct.field(pytree_node=False)
    ahead: int = struct.field(pytree_node=False)

    def path(self, seen: Array, known: Array) -> Array:
        """Best knowledge of the whole episode, (P,): what was seen, then forecasts, and the daily mean beyond them.

        seen:   (P,)  the series where it was seen
        known:  ()    int32 number of periods seen, from the first; what lies beyond the episode does not count
        """
        known = jnp.minimum(known, seen.shape[0])
        day, size = self.per_day, self.mean.shape[0]
        today = jnp.maximum(known - 1, 0) // day
        usual = jnp.tile(self.mean[self.back * day : (self.back + 1) * day], -(-seen.shape[0] // day) + self.ahead)
        at = jnp.arange(usual.shape[0], dtype=jnp.int32)
        whole = jnp.where(at < known, jnp.pad(seen, (0, usual.shape[0] - seen.shape[0])), usual)
        padded = jnp.concatenate([jnp.zeros(self.back * day, whole.dtype), whole])
        window = lax.dynamic_slice(padded, (today * day,), (size,))
        position = jnp.arange(size, dtype=jnp.int32)
        count = known - (today - self.back) * day
        had_before = today >= self.back
        is_known = (position < count) & (had_before | (position >= self.back * day))
        gain = self.gain[had_before.astype(jnp.int32) if self.back else 0, jnp.minimum(count, size)]
        forecast = self.mean + matvec(gain, jnp.where(is_known, window - self.mean, 0))
        filled = lax.dynamic_update_slice(padded, jnp.where(is_known, window, forecast), (today * day,))
        return filled[self.back * day :][: seen.shape[0]]


def fit_forecast(days: np.ndarray, consecutive: np.ndarray, back: int, ahead: int, dtype: np.dtype) -> DailyForecast:
    """Fit on days of training.

    days:         (D, n)  periods of each day, in the order of the calendar
    consecutive:  (D,)    bool, the day follows the one before it in the table
    """
    span, n = back + 1 + ahead, days.shape[1]
    runs = [k for k in range(len(days) - span + 1) if consecutive[k + 1 : k + span].all()]
    rows = np.stack([days[k : k + span].reshape(-1) for k in runs])
    # few runs of several days: the mean of a day is that of all days
    mean = np.tile(days.mean(axis=0), span)
    spread = (rows - mean).T @ (rows - mean) / len(rows)
    # a series that never varies has no spread, and its mean for a forecast
    noise = max(RIDGE * np.trace(spread) / spread.shape[0], np.finfo(spread.dtype).tiny)
    size = span * n
    gain = np.zeros((2 if back else 1, size + 1, size, size))
    for flag in range(len(gain)):
        first = 0 if flag == len(gain) - 1 else back * n
        for count in range(first + 1, size + 1):
            seen = slice(first, count)
            inverse = np.linalg.inv(spread[seen, seen] + noise * np.eye(count - first))
            gain[flag, count][:, seen] = spread[:, seen] @ inverse
    return DailyForecast(
        mean=jnp.asarray(mean, dtype), gain=jnp.asarray(gain, dtype), per_day=n, back=back, ahead=ahead
    )


def remember(seen: Array, t: Array, values: Sequence[Array] | Array, leads: Sequence[int], steps: int) -> Array:
    """Memory (P,) with what an observation at step t shows `leads` steps ahead; `steps` make one period."""
    at = (t + jnp.asarray(leads, jnp.int32)) // steps
    return seen.at[at].set(jnp.asarray(values), mode="drop")


def train_sim(sim: Sim) -> Sim:
    """The same task on the days of training."""
    return _train_sim(sim.spec.id, sim.spec.version, sim.spec.overrides, str(sim.spaces()[1].low.dtype))  # type: ignore[union-attr]


@lru_cache(maxsize=4)
def _train_sim(task_id: str, version: int, overrides: tuple[tuple[str, object], ...], dtype: str) -> Sim:
    keywords = {name: value for name, value in overrides if name not in WINDOW}
    return make(task_id, version=version, split="train", dtype=dtype, **keywords)  # type: ignore[arg-type]


def train_days(sim: Sim, table: str) -> tuple[np.ndarray, np.ndarray]:
    """First rows of the days of training in "load_row" or "price_row" (D,), and which follow the day before, (D,)."""
    starts, per_day = sim.params.starts, round(24 / sim.spec.dt_hours)
    count = int(starts.n_start)
    first = np.asarray(getattr(starts, table))[:count].reshape(count, -1)
    if table == "price_row":
        pairs = np.asarray(starts.pair_count)[:count, None]
        first = first[np.arange(first.shape[1]) < pairs]
    span = max(1, sim.spec.horizon // per_day)
    rows = np.unique(first.reshape(-1, 1) + per_day * np.arange(span))
    return rows, np.concatenate([[False], np.diff(rows) == per_day])


def day_values(column: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
    """A column of a table as days (D, steps) that start at `rows`."""
    values: np.ndarray = np.asarray(column, np.float64)[rows[:, None] + np.arange(steps)]
    return values


def period_steps(days: np.ndarray) -> int:
    """Number of steps for which a series keeps its value: the most that divides a day and holds on every day."""
    steps = days.shape[1]
    for size in sorted((k for k in range(1, steps + 1) if steps % k == 0 and k <= 4), reverse=True):
        blocks = days.reshape(len(days), -1, size)
        if np.array_equal(blocks, np.broadcast_to(blocks[..., :1], blocks.shape)):
            return size
    return 1
