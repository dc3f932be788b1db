"""Voltages along a network and loadings of its branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions, is_radial, radial_order
from powerzoo_jax.plot.layout import ALARM, COLOURS, LIMIT, LIMIT_LINE, look, new_figure
from powerzoo_jax.plot.network import voltage_band

SPREAD = (5, 95)  # percentiles of a batch that the band of a profile covers
MOST = 20  # branches in a picture of loadings


def plot_voltage_profile(case: Case, profiles: ArrayLike | Mapping[str, ArrayLike], title: str = "") -> Any:
    """Draw bus voltages from the substation outwards (radial) or bus by bus (meshed): a matplotlib Figure.

    profiles:  (N,) [pu], or (B, N) of which the median is drawn and the range from the 5th to the 95th percentile;
               several by name
    Raises ValueError for another number of buses, ImportError without matplotlib (extra `viz`).

    Example:
        from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, solve_feeder
        case = powerzoo_jax.load_case("case33bw")
        s = nominal_injection(case)
        solve = jax.jit(solve_feeder)
        factors = prepare_feeder(case)
        full, half = (solve(factors, jnp.float32(k * s.real), jnp.float32(k * s.imag)) for k in (1.0, 0.5))
        plot_voltage_profile(case, {"full load": full.v_pu, "half load": half.v_pu})
    """
    named = profiles if isinstance(profiles, Mapping) else {"": profiles}
    figure = new_figure(8.0, 4.0)
    axes = figure.subplots()
    at, edges, label = _abscissa(case)
    for k, (name, values) in enumerate(named.items()):
        v_pu = np.atleast_2d(np.asarray(values, float))
        if v_pu.ndim != 2 or v_pu.shape[1] != case.n_bus:
            raise ValueError(f"profile {name!r}: expected (N,) or (B, N), N = {case.n_bus}, got {np.shape(values)}.")
        _draw_profile(axes, at, edges, v_pu, {**look(k), "label": name})
    for limit in voltage_band(case):
        axes.axhline(limit, **LIMIT_LINE)
        axes.annotate("limit", (0, limit), xytext=(4, 3), textcoords="offset points", fontsize="small")
    axes.set(xlabel=label, ylabel="voltage [pu]", title=title or case.name)
    axes.xaxis.get_major_locator().set_params(integer=True)  # buses and branches are counted
    axes.grid(alpha=0.3)
    if len(named) > 1:
        axes.legend(fontsize="small", frameon=False)
    return figure


def _abscissa(case: Case) -> tuple[np.ndarray, np.ndarray, str]:
    """Abscissa (N,), the pairs of positions (E, 2) that a line joins, and the label of the axis."""
    if not is_radial(case):
        order = np.argsort(case.bus.id, kind="stable")
        at = np.empty(case.n_bus)
        at[order] = np.arange(case.n_bus)
        return at, np.stack([order[:-1], order[1:]], axis=1), "bus, in the order of their numbers [-]"
    f, t = branch_positions(case)
    tree = radial_order(case.n_bus, f, t, case.branch.in_service, int(case.slack_bus[0]))
    below = np.flatnonzero(tree.parent >= 0)
    at = np.where(tree.depth >= 0, tree.depth, np.nan)
    return at, np.stack([tree.parent[below], below], axis=1), "branches between substation and bus [-]"


def _draw_profile(axes: Any, at: np.ndarray, edges: np.ndarray, v_pu: np.ndarray, shown: dict[str, Any]) -> None:
    """One line that breaks where no branch leads on; a batch gets bars from percentile to percentile."""
    middle = np.median(v_pu, axis=0)
    gap = np.full(len(edges), np.nan)
    x = np.stack([at[edges[:, 0]], at[edges[:, 1]], gap], axis=1).ravel()
    y = np.stack([middle[edges[:, 0]], middle[edges[:, 1]], gap], axis=1).ravel()
    axes.plot(x, y, **shown)
    axes.plot(at, middle, "o", markersize=3, color=shown["color"])
    if len(v_pu) > 1:
        low, high = np.percentile(v_pu, SPREAD, axis=0)
        axes.vlines(at, low, high, color=shown["color"], alpha=0.35, linewidth=4)


def plot_branch_loading(case: Case, loading: ArrayLike, most: int = MOST, title: str = "") -> Any:
    """Draw the most loaded branches as bars, those beyond their rating hatched: a matplotlib Figure.

    loading:  (L,) [-] share of the rating (`branch_loading`); NaN = unrated, left out
    Raises ValueError for another number of branches or where none has a rating, ImportError without matplotlib
    (extra `viz`).

    Example:
        from powerzoo_jax.plot import over_rating
        case = powerzoo_jax.load_case("pz_case5")
        plot_branch_loading(case, over_rating(case, flow_mva=[210.0, 180.0, 60.0, 40.0, 30.0, 240.0]))
    """
    share = np.asarray(loading, float)
    if share.shape != (case.n_branch,):
        raise ValueError(f"loading: expected ({case.n_branch},), one value a branch, got {share.shape}.")
    rated = np.flatnonzero(np.isfinite(share))
    if not len(rated):
        raise ValueError(f"{case.name} has no rated branch in service. Give rate_a_mva, or load its `pz_` variant.")
    top = rated[np.argsort(-share[rated], kind="stable")][:most]
    figure = new_figure(7.0, 1.2 + 0.25 * len(top))
    axes = figure.subplots()
    over = share[top] > 1
    bars = axes.barh(np.arange(len(top)), 100 * share[top], color=np.where(over, ALARM, COLOURS[0]))
    for bar, beyond in zip(bars, over, strict=True):
        bar.set_hatch("//" if beyond else "")
    ends = zip(top + 1, case.branch.from_id[top], case.branch.to_id[top], strict=True)
    axes.set_yticks(np.arange(len(top)), [f"{k}: {a} - {b}" for k, a, b in ends], fontsize="small")
    axes.invert_yaxis()
    axes.axvline(100, color=LIMIT, linewidth=1.0)
    axes.set(xlabel="loading, share of rating [%]", ylabel="branch: from - to bus", title=title or case.name)
    return figure
