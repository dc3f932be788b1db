"""Causal planner of batteries, plants and flexible loads beside each other, with inverters that supply reactive power.

Batteries trade by `storage_value` on the prices seen so far and their forecasts. Every inverter supplies as much
reactive power as its circle leaves: on a loaded feeder that lowers losses and lifts voltages at no cost. Plants curtail
nothing, flexible loads stay as they are.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.causal.storage import (
    StorageMemory,
    StorageModel,
    StorageSight,
    first_memory,
    planned_power,
    storage_model,
)
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.oracle.registry import Policy

STORED = "ders_state_0"  # state of charge, where a unit is a battery


def plan_ders(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of the batteries, and reactive power from every inverter."""
    del keys
    blocks = {block.kind: block for block in sim.env.layout.table.blocks}
    batteries, column = tuple(blocks["storage"].units), sim.env.fields.names.index(STORED)
    model, sight = storage_model(sim, tuple((unit, column) for unit in batteries), limited=False)
    resting = jnp.asarray(idle_action(sim))
    for kind in ("storage", "renewable"):
        block = blocks[kind]
        resting = resting.at[jnp.asarray(block.units), block.names.index("q_control")].set(1)
    act = Partial(partial(_act, sight, batteries), (model, resting))
    return Policy(act, first_memory(sight, model, draws.load_row.shape[0]))


def _act(
    sight: StorageSight,
    batteries: tuple[int, ...],
    constants: tuple[StorageModel, Array],
    memory: StorageMemory,
    obs: Array,
    key: Array,
) -> tuple[StorageMemory, Array]:
    del key
    model, resting = constants
    memory, power = planned_power(sight, model, memory, obs)
    return memory, resting.at[jnp.asarray(batteries), 0].set(power / model.store.power_mw)
