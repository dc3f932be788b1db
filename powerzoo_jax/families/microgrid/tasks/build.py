"""The data-centre microgrid tasks: settings, splits and stress, and the Sim they make."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import DataMissing, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import NotNegative, Positive, PositiveShare, Share
from powerzoo_jax.data import Series, list_splits
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.devices import renewable_params, thermal_params
from powerzoo_jax.devices.facility import JobClass, QueueSizes
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import EpisodeStarts
from powerzoo_jax.families.microgrid.env import FIELDS, MicrogridBank, MicrogridEnv, MicrogridParams
from powerzoo_jax.families.microgrid.names import CARBON_TERMS, DROPPED, NAMES
from powerzoo_jax.families.microgrid.tasks import series
from powerzoo_jax.tasks.settings import (
    MINUTES_PER_HOUR,
    BatteryKeywords,
    Celsius,
    EpisodeSettings,
    agent_names,
    horizon_steps,
    recorded,
    refuse_padding,
    refuse_unknown_names,
    step_minutes,
    storage_stack,
)
from powerzoo_jax.tasks.site import WEATHER_SET, SiteKeywords, site_sizes, site_stack, utilisation_model


@dataclass(frozen=True)
class MicrogridTightness:
    """Tightness of the constraints: budgets a day by channel, in the unit of each, and critical temperature."""

    budget: dict[str, float]
    t_critical_c: float


TIGHTNESS = {
    "loose": MicrogridTightness({"sla": 5.0, "overtemp": 1.0, "power_deficit": 0.5, DROPPED: 150.0}, 32.0),
    "standard": MicrogridTightness({"sla": 2.0, "overtemp": 0.5, "power_deficit": 0.15, DROPPED: 60.0}, 30.0),
    "strict": MicrogridTightness({"sla": 1.0, "overtemp": 0.2, "power_deficit": 0.05, DROPPED: 30.0}, 28.0),
}
STRESS: dict[str, dict[str, Any]] = {
    "renewable_drought": {"solar_factor": 0.2},
    "cooling_stress": {"warmer_c": 8.0},
    "dg_derating": {"dg_derating_factor": 0.5},
    "sla_tighten": {"sla_tighten_factor": 0.5},
    "workload_swap": {"workload_preset": "online_batch"},
    "workload_shock": {"workload_preset": "vm_cloud"},
}
ISLAND = "island"  # in the place of a case
WEIGHTS = (1.0, 0.08, 0.01)  # of money, of carbon and of both, in the specs of the catalog
STRESS_TRACE = {"workload_swap": "azure", "workload_shock": "alibaba"}


@dataclass(frozen=True, kw_only=True)
class MicrogridSettings(SiteKeywords, BatteryKeywords, EpisodeSettings):
    """Keywords of the microgrid tasks beside those of the data centre; the catalog and the caller override them.

    constraint_tightness:   loose, standard or strict: budgets and t_critical_c
    ood_scenario:           a stress on the test days, the same as the split of that name
    weather, weather_site:  "tmy" at a site of the typical years, or "analytic"
    workload_source:        "synthetic", or a trace: "google:PATH", "azure:PATH", "alibaba:PATH", a file or a `Series`
    shifted_workload_source: the trace that takes its place under workload_swap and workload_shock
    workload_preset:        preset of the synthetic use
    strict_workload:        False lets synthetic work stand in for a trace that is not there
    cpu_profile, solar_profile, temperature_profile: one day of steps each, repeated: inference use [0, 1],
                            capacity factor [0, 1], outdoor temperature [degC]
    battery_*, initial_soc: as in the feeder tasks
    degradation_per_mwh:    [$/MWh] wear of the battery
    pv_capacity_mw:         [MW] rating of the solar plant
    dg_max_mw:              [MW] rating of the diesel set
    dg_p_min_norm:          [-] its least load over its rating
    dg_fuel_usd_per_mwh, dg_start_usd: [$/MWh], [$] its fuel and a start of it
    dg_emission_kg_per_mwh: [kg/MWh] its carbon dioxide
    w_cost, w_carbon, reward_scale: reward = scale * (w_cost * money + w_carbon * carbon), $/kg for carbon; None keeps
                            the weights of the spec, which are those of 1, 0.08 and 0.01
    voll:                   [$/MWh] price of load that is not served
    sla_price:              [$/job] price of a job that misses its deadline
    backlog_price:          [$/GPU h] price of work that is left at the end
    price_misses:           False leaves misses to the sla channel alone (None: where they weigh nothing in the spec)
    dg_derating_factor, sla_tighten_factor: scale the diesel rating, and the slack of the jobs
    solar_factor:           factor on the sun
    warmer_c:               [degC] on top of the weather
    start_date, end_date:   of 2018, as the year of the weather is called
    """

    constraint_tightness: str = "standard"
    ood_scenario: str | None = None
    weather: str = "tmy"
    weather_site: str = TMY_SITES[0]
    workload_source: str | Path | Series = "synthetic"
    shifted_workload_source: str | Path | Series | None = None
    workload_preset: str = "hyperscale"
    strict_workload: bool = True
    cpu_profile: tuple[Share, ...] | None = None
    solar_profile: tuple[Share, ...] | None = None
    temperature_profile: tuple[Celsius, ...] | None = None
    gpu_active_w: Positive = 580.0
    p_base_mw: NotNegative = 0.4
    p_cool_min_mw: NotNegative = 0.0
    battery_capacity_mwh: Positive = 2.0
    battery_power_mw: Positive = 0.5
    eta_roundtrip: PositiveShare = 0.9025
    degradation_per_mwh: NotNegative = 5.0
    pv_capacity_mw: Positive = 0.4
    dg_max_mw: Positive = 0.6
    dg_fuel_usd_per_mwh: NotNegative = 300.0
    dg_emission_kg_per_mwh: NotNegative = 800.0
    dg_p_min_norm: Share = 0.0
    dg_start_usd: NotNegative = 0.0
    w_cost: NotNegative | None = None
    w_carbon: NotNegative | None = None
    reward_scale: Positive | None = None
    voll: NotNegative = 10_000.0
    sla_price: NotNegative = 500.0
    backlog_price: NotNegative = 1.0
    price_misses: bool | None = None
    dg_derating_factor: NotNegative = 1.0
    sla_tighten_factor: NotNegative = 1.0
    solar_factor: NotNegative = 1.0
    warmer_c: Celsius = 0.0

    def idle(self) -> dict[str, str]:
        drawn = self.workload_source == "synthetic" and self.cpu_profile is None
        found = {} if drawn else {"workload_preset": "synthetic work without cpu_profile"}
        both = self.solar_profile is not None and self.temperature_profile is not None
        if both or self.weather != "tmy":
            found["weather_site"] = "weather='tmy' and no profile of the sun or of the temperature"
        if both:
            found["weather"] = "a sun or a temperature without a profile"
        return super().idle() | found

    @property
    def job_classes(self) -> tuple[JobClass, JobClass]:
        return self.train_cfg, self.finetune_cfg

    def tightened(self) -> MicrogridSettings:
        """The same with the tighter slack of the jobs."""
        return dataclasses.replace(self, slack_factor=self.slack_factor * self.sla_tighten_factor)


def build_microgrid(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build an islanded data centre with its series.

    Raises ValueError for an unknown split, tightness or preset, and for `dims` other than the task's own.
    """
    dtype = resolve_dtype(dtype)
    overrides = {key: _hashable(value) for key, value in overrides.items()}
    settings = resolve_settings(spec, overrides)
    split, settings = _under_stress(spec, split, settings)
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    # refuse a network, and reward terms and cost channels that the environment does not know
    if spec.case != ISLAND:
        raise ValueError(f"{spec.id}: case = {spec.case!r}: a microgrid has one bus and no network. Write {ISLAND!r}.")
    refuse_unknown_names(spec, NAMES.terms, NAMES.costs)
    weights = _weights(spec, settings, overrides.get("price_misses"))
    n_cost, n_term = len(spec.cost_names), len(spec.term_names)
    own = Dims(bus=1, branch=0, unit=1, agent=1, obs=FIELDS.size, act=5, choice=0, cost=n_cost, term=n_term)
    refuse_padding(spec.id, dims, own)
    static = site_sizes(settings, minutes)
    starts = series.find_starts(_days_of(split), horizon, minutes, settings.dates)
    env = MicrogridEnv(
        dims=own,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=weights,
        fields=FIELDS,
        sizes=static,
        price_misses=dict(zip(spec.term_names, weights, strict=True)).get("missed_jobs") != 0,
        term_names=spec.term_names,
        cost_names=spec.cost_names,
        solver=settings.solver,
    )
    spec = dataclasses.replace(
        spec,
        agents=agent_names(spec, ("datacenter_0",)),
        split=split if starts.split == _days_of(split) else starts.split,
        horizon=horizon,
        dt_hours=env.dt_hours,
        cost_budget=_budget(spec, settings),
        term_weights=env.term_weights,
        overrides=recorded(spec, overrides),
    )
    return Sim(params=_params(settings, starts, env, horizon, minutes, dtype), env=env, spec=spec)


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> MicrogridSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    settings = MicrogridSettings.merged(spec.id, dict(spec.overrides), overrides)
    settings.check(spec.id, {"constraint_tightness": TIGHTNESS})
    return settings


def _hashable(value: Any) -> Any:
    """The spec is static in every compiled program: arrays and lists become tuples of numbers."""
    if isinstance(value, np.ndarray | jnp.ndarray):
        return tuple(np.asarray(value, np.float64).tolist())
    return tuple(value) if isinstance(value, list) else value


def _days_of(split: str) -> str:
    """Split whose days a named split plays: stress acts on test days."""
    return "test" if split in STRESS else split


def _under_stress(spec: TaskSpec, split: str, settings: MicrogridSettings) -> tuple[str, MicrogridSettings]:
    """The named split and the settings it changes; a stress multiplies or adds to what the caller chose."""
    known = (*list_splits(WEATHER_SET), *STRESS)
    if settings.ood_scenario is not None:
        if settings.ood_scenario not in STRESS:
            raise ValueError(f"{spec.id}: {unknown('ood_scenario', settings.ood_scenario, STRESS)}")
        split = settings.ood_scenario
    if split not in known:
        raise ValueError(unknown("split", split, known))
    changes = dict(STRESS.get(split, {}))
    for name in ("solar_factor", "dg_derating_factor", "sla_tighten_factor"):
        if name in changes:
            changes[name] *= getattr(settings, name)
    if "warmer_c" in changes:
        changes["warmer_c"] += settings.warmer_c
    if split in STRESS_TRACE and settings.workload_source != "synthetic":
        if settings.shifted_workload_source is None:
            raise DataMissing(
                f"{split} on a trace plays another trace: give "
                f"shifted_workload_source='{STRESS_TRACE[split]}:PATH', or keep workload_source='synthetic'."
            )
        changes = {"workload_source": settings.shifted_workload_source}
    return split, dataclasses.replace(settings, **changes)


def _budget(spec: TaskSpec, settings: MicrogridSettings) -> tuple[float, ...]:
    """The catalog holds the standard budgets; other tightness replaces them."""
    if settings.constraint_tightness == "standard":
        return spec.cost_budget
    return tuple(TIGHTNESS[settings.constraint_tightness].budget[name] for name in spec.cost_names)


def _weights(spec: TaskSpec, settings: MicrogridSettings, price_misses: bool | None) -> tuple[float, ...]:
    """Weights of the reward terms: the spec's, over those that stand for money and for carbon where these are given.

    price_misses: the caller's; that of the spec is in its weights
    """
    money, carbon, scale = (
        1.0 if value is None else value / usual
        for value, usual in zip((settings.w_cost, settings.w_carbon, settings.reward_scale), WEIGHTS, strict=True)
    )
    weights = dict(zip(spec.term_names, spec.term_weights, strict=True))
    if price_misses is not None and "missed_jobs" in weights:
        paid = weights["missed_jobs"] or weights.get("unserved_energy", 0.0)
        weights["missed_jobs"] = paid if price_misses else 0.0
    return tuple(scale * (carbon if name in CARBON_TERMS else money) * weight for name, weight in weights.items())


def _bank(
    settings: MicrogridSettings, days: str, static: QueueSizes, horizon: int, minutes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tables of weather and of work."""
    trace = series.load_workload(settings.workload_source, settings.strict_workload)
    model = utilisation_model(settings.workload_preset)
    expected: Any = model if trace is None else None
    beside: Any = model if trace is None else trace
    if settings.cpu_profile is not None:
        expected, beside = settings.cpu_profile, None
    weather = series.WeatherSource(
        settings.weather,
        settings.weather_site,
        settings.solar_profile,
        settings.temperature_profile,
        settings.solar_factor,
        settings.warmer_c,
    )
    return (
        series.weather_rows(weather, expected, minutes),
        series.work_rows(days, beside, settings.job_classes, static, horizon, minutes),
    )


def _params(
    settings: MicrogridSettings, starts: series.Start, env: MicrogridEnv, horizon: int, minutes: int, dtype: np.dtype
) -> MicrogridParams:
    weather, work = _bank(settings, starts.split, env.sizes, horizon, minutes)
    hot = TIGHTNESS[settings.constraint_tightness].t_critical_c
    pairs = series.pair_traces(horizon)
    dims = env.dims
    return MicrogridParams(
        grid=(),
        factors=(),
        masks=no_padding(dims),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=MicrogridBank(weather_rows=jnp.asarray(weather, dtype), work_rows=jnp.asarray(work, dtype)),
        site=site_stack(settings.tightened(), hot, dtype),
        storage=storage_stack(settings, 1, settings.degradation_per_mwh, dtype),
        pv=renewable_params(1, dtype, capacity_mw=settings.pv_capacity_mw),
        diesel=thermal_params(
            1,
            dtype,
            p_max_mw=settings.dg_max_mw * settings.dg_derating_factor,
            p_min_norm=settings.dg_p_min_norm,
            fuel_usd_per_mwh=settings.dg_fuel_usd_per_mwh,
            start_usd=settings.dg_start_usd,
            carbon_kg_per_mwh=settings.dg_emission_kg_per_mwh,
        ),
        voll=jnp.asarray(settings.voll, dtype),
        sla_usd=jnp.asarray(settings.sla_price, dtype),
        backlog_usd_per_gpu_h=jnp.asarray(settings.backlog_price, dtype),
        queue=jnp.asarray(settings.queue, dtype),
        starts=EpisodeStarts(
            load_row=jnp.asarray(starts.row, jnp.int32),
            n_start=jnp.asarray(starts.n_start, jnp.int32),
            price_row=jnp.asarray(pairs, jnp.int32),
            pair_count=jnp.full(len(pairs), pairs.shape[1], jnp.int32),
        ),
    )
