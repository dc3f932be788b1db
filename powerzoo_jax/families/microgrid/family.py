"""Record of the microgrid family: what traces, scores and views ask of an islanded data centre."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Step
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Tally, site_energy
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.surface import Stores, TaskSurface, soc_limits
from powerzoo_jax.families.microgrid.env import ACTIONS, MicrogridInfo
from powerzoo_jax.families.microgrid.names import NAMES
from powerzoo_jax.families.microgrid.tasks.build import STRESS
from powerzoo_jax.tasks.site import WEATHER_SET


def _tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    del state, params
    info: MicrogridInfo = out.info
    return {
        **site_energy(info.p_load_mw, out.state.site.it_mw, dt_hours),
        "deficit_mwh": info.power_deficit_mw * dt_hours,
        "hours": jnp.full_like(info.power_deficit_mw, dt_hours),
        "mean_carbon_kg": info.carbon_kg,
        "fuel_mwh": info.p_dg_mw * dt_hours,
    }


def _action_ids(sim: Sim) -> tuple[str, ...]:
    del sim
    return tuple(name for name, _, _ in ACTIONS)


def _surface(sim: Sim) -> TaskSurface:
    low, high = (np.array([[action[k] for action in ACTIONS]]) for k in (1, 2))
    site = dict(sim.spec.overrides).get("weather_site", TMY_SITES[0])
    stores = Stores(("battery_0",), *soc_limits(sim.params.storage))
    return TaskSurface(low, high, (WEATHER_SET, f"weather.{site}_temperature_c"), stores)


MICROGRID = Family(
    name="microgrid",
    names=NAMES,
    tally=_tally,
    action_ids=_action_ids,
    splits=tuple(STRESS),
    surface=_surface,
    one_kernel=True,
)
