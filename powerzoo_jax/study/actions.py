"""Single actions of one network as a table: a branch opened or closed, a substation split, and the power flow after."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow.busbars.actions import rank_actions
from powerzoo_jax.powerflow.busbars.configurations import action_names, configurations, line_names
from powerzoo_jax.powerflow.busbars.network import element_injection, prepare_topology
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.study.table import StudyTable

FLOWS_AS_RATINGS = (
    "no branch has a rating: loadings after actions are of the flow before, of at least a tenth of the largest one"
)


def action_table(case: Case, kept: float) -> StudyTable:
    """Power flow after every single action, best first below the row of the state as it is.

    case:  its units as dispatched, the slack balancing     kept: share of a rating that counts as no violation
    """
    with jax.enable_x64(True):
        network, found = prepare_topology(case, dtype="float64"), configurations(case)
        s, lines = element_injection(case, network), network.counts.branches
        p, q = jnp.asarray(s.real), jnp.asarray(s.imag)
        rate = jnp.asarray(case.branch.rate_a_mva / case.base_mva) if case.branch.rate_a_mva.any() else None
        # without the rows that set a substation as it is
        splits = np.flatnonzero((np.asarray(found.topology) == 2).any(1))
        actions = np.r_[np.arange(1 + lines), 1 + lines + splits]
        only = jnp.asarray(actions, jnp.int32)
        result = jax.tree.map(np.asarray, jax.jit(rank_actions)(network, found, p, q, None, rate, only))
    row = np.r_[0, result.order[result.order != 0]]
    solved = result.status[row] == Status.CONVERGED
    names, line = np.array(action_names(case, found), object), np.array([*line_names(case), "-"], object)
    columns = {
        "action": names[actions[row]],
        "loading": np.where(solved, 100 * result.loading[row], np.nan),
        "on_branch": line[result.worst_branch[row]],
        "overload_mva": np.where(solved, case.base_mva * result.overload[row], np.nan),
        "p_loss_mw": np.where(solved, case.base_mva * result.p_loss[row], np.nan),
    }
    beyond = (np.nan_to_num(columns["loading"]) > 100 * (1 + kept)) & (rate is not None)
    words = np.where(beyond, "overloaded", "").astype(object)
    words[~solved] = "no power flow"
    words[result.status[row] == Status.ISLANDED] = "cuts the grid"
    return StudyTable("action", columns, dict(zip(columns, ("", "%", "", "MVA", "MW"), strict=True)), tuple(words))
