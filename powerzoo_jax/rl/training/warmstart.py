"""Training that goes on from a policy: that of a planner's imitator, of another learner, or of another split.

What continues are the weights of the policy and the scaling of its observations. Critics, optimisers and prices begin
anew; an analytic policy, which has no noise to explore by and no value, leaves PPO those of its own.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from powerzoo_jax.base.errors import SettingsError, listing
from powerzoo_jax.rl.policies import ActorPolicy

S = TypeVar("S")

OWN = ("log_std", "values")  # parts of a policy that another one may do without: its noise, and a value beside it
SAME = "A setting such as widths, memory, history, joint or shared_torso differs between the two, or the task does."


def start_at(state: S, policy: ActorPolicy) -> S:
    """State of a run whose policy is the given one; both with the same leading axes of runs side by side, if any.

    state:   first state of PPO, a relative of it, the analytic policy gradient or an imitator
    policy:  of any of these, as `Learner.policy_of` gives it
    Raises SettingsError naming the weights that only one of them has, or that differ in shape.
    """
    learned = hasattr(state, "params")
    own = state.params["actor"] if learned else state.actor  # type: ignore[attr-defined]
    actor, scale = _taken(own, policy.actor), _taken(state.scale, policy.scale)  # type: ignore[attr-defined]
    weights = {"params": state.params | {"actor": actor}} if learned else {"actor": actor}  # type: ignore[attr-defined]
    begun: S = state.replace(scale=scale, **weights)  # type: ignore[attr-defined]
    return begun


def _taken(own: Any, given: Any) -> Any:
    """Leaves of `given` in the structure of `own`."""
    mine, theirs = _leaves(own), _leaves(given)
    other = {path for path in mine.keys() ^ theirs.keys() if not any(f"['{part}']" in path for part in OWN)}
    other |= {path for path in mine.keys() & theirs.keys() if mine[path].shape != theirs[path].shape}
    if other:
        raise SettingsError(f"the policy to start from has other weights: {listing(sorted(other))}. {SAME}")
    leaves = [jnp.asarray(theirs.get(path, x), x.dtype) for path, x in mine.items()]
    return jax.tree.unflatten(jax.tree.structure(own), leaves)


def _leaves(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
