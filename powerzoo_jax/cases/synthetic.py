"""Random radial feeders: plausible trees, conductors and loads as raw parameters, and jitter of loads and ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import CaseError, unknown
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.random import normal, uniform, uniform_between
from powerzoo_jax.cases.case import PQ, REF, Case, assemble

BASE_MVA = 10.0  # of the per-unit values below; powers and voltages do not depend on it
UNLIMITED_MVA = 1e4  # of the source behind the slack bus


@dataclass(frozen=True)
class FeederModel:
    """Distributions that a random feeder is drawn from.

    base_kv:         [kV]      line to line
    conductors:      (r [ohm/km], x [ohm/km], current [kA]) from thin to thick
    load_mw:         [MW]      mean load of a bus
    load_spread:     [-]       standard deviation of the logarithm of a load
    power_factor:    (low, high), drawn for each bus
    window:          a bus hangs on one of the last `window` buses: small is long and thin, large is bushy
    length_spread:   [-]       standard deviation of the logarithm of a length
    drop_pu:         (low, high) [pu]  voltage drop to the worst bus, which sets the lengths
    margin:          [-]       least rating over flow when a conductor is chosen
    """

    base_kv: float
    conductors: tuple[tuple[float, float, float], ...]
    load_mw: float
    load_spread: float = 0.6
    power_factor: tuple[float, float] = (0.90, 0.98)
    window: int = 6
    length_spread: float = 0.5
    drop_pu: tuple[float, float] = (0.03, 0.07)
    margin: float = 1.25


# Conductors: round values of manufacturers' tables for NAYY and NA2XS(F)2Y cables and Al/St overhead lines.
FEEDERS: dict[str, FeederModel] = {
    "lv": FeederModel(
        base_kv=0.4,
        conductors=((0.64, 0.083, 0.142), (0.32, 0.082, 0.215), (0.21, 0.080, 0.270), (0.125, 0.080, 0.364)),
        load_mw=0.003,
    ),
    "mv_cable": FeederModel(
        base_kv=20.0,
        conductors=((0.51, 0.132, 0.170), (0.25, 0.122, 0.250), (0.16, 0.117, 0.320), (0.12, 0.112, 0.420)),
        load_mw=0.3,
    ),
    "mv_overhead": FeederModel(
        base_kv=12.66,
        conductors=((0.84, 0.36, 0.170), (0.59, 0.35, 0.210), (0.31, 0.33, 0.350), (0.19, 0.31, 0.470)),
        load_mw=0.1,
    ),
    "hv": FeederModel(
        base_kv=110.0, conductors=((0.19, 0.40, 0.470), (0.12, 0.39, 0.645), (0.06, 0.38, 0.960)), load_mw=8.0
    ),
}


class Feeder(NamedTuple):
    """Raw parameters of a feeder; bus 0 is the source, branch i - 1 joins bus i to its parent.

    parent:     (N-1,)  int32   position of the parent of buses 1, 2, ...; smaller than their own
    r_pu, x_pu: (N-1,)  [pu]    on BASE_MVA
    rate_mva:   (N-1,)  [MVA]
    p_mw:       (N,)    [MW]    load, 0 at the source
    q_mvar:     (N,)    [Mvar]
    """

    parent: Array
    r_pu: Array
    x_pu: Array
    rate_mva: Array
    p_mw: Array
    q_mvar: Array


def get_feeder_model(level: str) -> FeederModel:
    """Model of a voltage level; raises CaseError for an unknown one."""
    if level not in FEEDERS:
        raise CaseError(unknown("feeder level", level, FEEDERS))
    return FEEDERS[level]


def draw_feeder(key: Array, n_bus: int, model: FeederModel) -> Feeder:
    """Draw a radial feeder of n_bus buses: pure and vmappable over keys.

    Loads are log-normal with mean load_mw.  The conductor of a branch is the thinnest that carries its lossless flow
    with a margin, in parallel circuits beyond the thickest.  Lengths are log-normal and scaled so that the
    linearised voltage drop (Baran and Wu, 1989), sum of r P + x Q along the path, reaches a drawn value.
    """
    keys = jax.random.split(key, 5)
    at = jnp.arange(1, n_bus, dtype=jnp.int32)
    back = uniform(keys[0], at.shape) * jnp.minimum(at, model.window).astype(float)
    parent = jnp.maximum(at - 1 - back.astype(jnp.int32), 0)
    p, q = _draw_loads(keys[1], keys[2], n_bus, model)
    path = _paths(parent, n_bus)
    flow_p, flow_q = matmul(path.T, p[1:]), matmul(path.T, q[1:])
    r_km, x_km, rate = _choose_conductors(jnp.hypot(flow_p, flow_q), model)
    length = jnp.exp(model.length_spread * normal(keys[3], at.shape))
    drop = matmul(path, length * (r_km * flow_p + x_km * flow_q)) / BASE_MVA
    goal = uniform_between(keys[4], (), *model.drop_pu)
    length = length * goal / drop.max()
    return Feeder(parent, r_km * length, x_km * length, rate, p, q)


def _draw_loads(load_key: Array, factor_key: Array, n_bus: int, model: FeederModel) -> tuple[Array, Array]:
    spread = model.load_spread  # the last term of the exponent makes load_mw the mean, not the median
    p = model.load_mw * jnp.exp(spread * normal(load_key, (n_bus,)) - 0.5 * spread**2)
    p = p.at[0].set(0.0)
    factor = uniform_between(factor_key, (n_bus,), *model.power_factor)
    return p, p * jnp.tan(jnp.arccos(factor))


def _paths(parent: Array, n_bus: int) -> Array:
    """(N-1, N-1): 1 where the branch of the column lies between the source and the bus of the row, itself included."""

    def hang(table: Array, bus: Array) -> tuple[Array, None]:
        row = table[parent[bus - 1]].at[bus].set(1.0)
        return table.at[bus].set(row), None

    table, _ = jax.lax.scan(hang, jnp.zeros((n_bus, n_bus)), jnp.arange(1, n_bus, dtype=jnp.int32))
    return table[1:, 1:]


def _choose_conductors(flow_mva: Array, model: FeederModel) -> tuple[Array, Array, Array]:
    """Resistance and reactance [pu/km] and rating [MVA] of each branch."""
    z_base = model.base_kv**2 / BASE_MVA
    r, x, kiloampere = jnp.asarray(model.conductors, flow_mva.dtype).T
    rating = 3**0.5 * model.base_kv * kiloampere
    need = model.margin * flow_mva
    circuits = jnp.maximum(jnp.ceil(need / rating[-1]), 1.0)
    kind = jnp.minimum(jnp.searchsorted(rating, need / circuits), len(model.conductors) - 1)
    return r[kind] / z_base / circuits, x[kind] / z_base / circuits, rating[kind] * circuits


def jitter_feeder(key: Array, feeder: Feeder, load_spread: float = 0.1, rating_spread: float = 0.05) -> Feeder:
    """Multiply loads and ratings by log-normal factors of mean 1, for domain randomisation; power factors stay."""
    load_key, rating_key = jax.random.split(key)
    load = _factors(load_key, feeder.p_mw, load_spread)
    rating = _factors(rating_key, feeder.rate_mva, rating_spread)
    return feeder._replace(p_mw=feeder.p_mw * load, q_mvar=feeder.q_mvar * load, rate_mva=feeder.rate_mva * rating)


def _factors(key: Array, like: Array, spread: float) -> Array:
    return jnp.exp(spread * normal(key, like.shape, like.dtype) - 0.5 * spread**2)


def feeder_case(feeder: Feeder, model: FeederModel, name: str = "synthetic") -> Case:
    """Host case of one drawn feeder, buses numbered from 1, with an unlimited source at bus 1."""
    p, q, r, x, rate = (
        np.asarray(column, np.float64)
        for column in (feeder.p_mw, feeder.q_mvar, feeder.r_pu, feeder.x_pu, feeder.rate_mva)
    )
    ids, line = np.arange(1, len(p) + 1), np.arange(2, len(p) + 1)
    columns = {
        "bus": (ids, np.where(ids == 1, REF, PQ), p, q, 0, 0, 1, 1, 0, model.base_kv, 1, 1.1, 0.9),
        "branch": (np.asarray(feeder.parent) + 1, line, r, x, 0, rate, 0, 0, 0, 0, 1),
        "gen": (np.ones(1), p.sum(), q.sum(), UNLIMITED_MVA, -UNLIMITED_MVA, 1, BASE_MVA, 1, UNLIMITED_MVA, 0),
    }
    tables = {kind: np.column_stack(np.broadcast_arrays(*table)) for kind, table in columns.items()}
    return assemble(name, BASE_MVA, "random feeder, powerzoo_jax.cases.synthetic", tables)
