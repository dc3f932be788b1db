"""Family of tasks: the record by which shared code asks for what is particular to its environments.

A folder of `powerzoo_jax.families`, or one outside the package, holds the environments, the tasks and the plans of a
family, and one `Family`. Stacking, traces, scores, pages and views find it by `TaskSpec.family`, the name of the
folder; what it leaves out, they do without. Where a folder has a second environment, its record says what is otherwise
for that one: `family_of` is asked about a simulation, `get_family` about all tasks of a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from powerzoo_jax.base.exports import load_object
from powerzoo_jax.base.types import TaskSpec


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


class Names(NamedTuple):
    """Names that the tasks of a family may have.

    terms, costs:  reward terms and cost channels
    devices:       its tasks take rows `devices`
    of_devices:    terms and channels of every kind of device are among its own
    """

    terms: tuple[str, ...]
    costs: tuple[str, ...]
    devices: bool = False
    of_devices: bool = False


@dataclass(frozen=True, kw_only=True)
class Family:
    """Family of tasks whose environments share a kind of parameters, states and information.

    name:            the value of `TaskSpec.family`
    names:           names that its tasks may have, checked when one is registered; None leaves them unchecked
    rivals:          agents earn for themselves: a return is the sum of theirs
    read:            (sim, state, action, info) -> what a step did to the network, the tables of a trace by name
    tally:           (state, step, params, dt_hours) -> figures that add up over an episode, by name
    figures:         (sim, totals (B, ...)) -> further figures of episodes, as pairs (part (B,), of (B,)) by name
    beside_best:     (mean return, that of the best plans) -> figures relative to the best
    networks:        sim -> the networks of a trace by prefix; None takes the one grid of the parameters
    action_ids:      sim -> name of each entry of an action, row after row; None numbers them by agent
    device_ids:      sim -> name of each device, in the order of their powers; None takes those of its `layout`
    store_ids:       sim -> name of what stores energy; None takes those of its `layout`
    align:           simulations -> one environment for all lanes, and the parameters of each padded to it; None stacks
                     lanes of equal sizes alone
    shares_factors:  factors -> whether all lanes share them; None asks the factors of the solver
    loads_shared:    entries of actions share one load, so that equal ones change nothing
    data_sets:       spec -> data sets that its keywords do not name, beside that of the weather of a site
    splits:          named splits beside train, val and test, of tasks whose record names none
    surface:         sim -> what views show in units of the devices, see `envs.surface`; None has no view of the drop-in
    unit_fields:     fields of the information that have one entry for each agent
    dc_flow:         spec -> whether flows are MW without losses
    one_kernel:      a step is a hundred small operations, which one core runs as one kernel
    environments:    class of an environment -> entries that are otherwise for it and its subclasses: of those that are
                     asked about a simulation, see `family_of`
    baselines, causal, priced: places of what `Task` names, "module:NAME", for tasks of one's own that name none and are
                     like no shipped one
    """

    name: str
    names: Names | None = None
    rivals: bool = False
    read: Callable[..., Mapping[str, Any]] = _nothing
    tally: Callable[..., Mapping[str, Any]] = _nothing
    figures: Callable[..., Mapping[str, tuple[Any, Any]]] = _nothing
    beside_best: Callable[[float, float], Mapping[str, float]] = _nothing
    networks: Callable[[Any], Mapping[str, Any]] | None = None
    action_ids: Callable[[Any], tuple[str, ...]] | None = None
    device_ids: Callable[[Any], tuple[str, ...]] | None = None
    store_ids: Callable[[Any], tuple[str, ...]] | None = None
    align: Callable[..., tuple[Any, list[Any]]] | None = None
    shares_factors: Callable[[Any], bool] | None = None
    loads_shared: bool = False
    data_sets: Callable[[TaskSpec], tuple[str, ...]] = lambda spec: ()
    splits: tuple[str, ...] = ()
    surface: Callable[[Any], Any] | None = None
    unit_fields: tuple[str, ...] = ()
    dc_flow: Callable[[TaskSpec], bool] = lambda spec: False
    one_kernel: bool = False
    environments: Mapping[type, Mapping[str, Any]] = field(default_factory=dict)
    baselines: str = ""
    causal: str = ""
    priced: str = ""


_FOLDERS = "powerzoo_jax.families"
_PLACES = {
    "feeder": f"{_FOLDERS}.feeder.family:FEEDER",
    "joint": f"{_FOLDERS}.joint.family:JOINT",
    "market": f"{_FOLDERS}.market.family:MARKET",
    "microgrid": f"{_FOLDERS}.microgrid.family:MICROGRID",
    "operation": f"{_FOLDERS}.operation.family:OPERATION",
    "transmission": f"{_FOLDERS}.transmission.family:TRANSMISSION",
}
# Second names, which saved traces, data sets and tasks may hold.
_FORMER = {"distribution": "feeder", "storage_market": "market", "transgrid": "transmission"}
_OWN: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Make a family of one's own known, before a task of it is made. Raises ValueError for a name that is taken.

    Example:
        register_family(Family(name="gas", tally=lambda state, step, params, dt_hours: {"gas_mwh": step.info.p_mw}))
    """
    if family.name in {*_PLACES, *_FORMER, *_OWN}:
        raise ValueError(f"family {family.name!r} is registered already. Choose another name.")
    _OWN[family.name] = family


def get_family(name: str) -> Family:
    """Record of a family by the value of `TaskSpec.family`; one that nobody registered has nothing of its own."""
    name = family_name(name)
    if name in _PLACES:
        found: Family = load_object(_PLACES[name])
        return found
    return _OWN.get(name) or Family(name=name)


def family_of(sim: Any) -> Family:
    """Record of the family of a simulation, with what is otherwise for its environment."""
    family, env = get_family(sim.spec.family), sim.env
    while hasattr(env, "env"):  # an environment around another one
        env = env.env
    own = (family.environments[cls] for cls in type(env).__mro__ if cls in family.environments)
    return replace(family, **next(own, {}))


def names_of(name: str, build: str) -> Names | None:
    """Names that a task of a family may have; None where nothing is known, as for a builder from outside its folder.

    build:  of the task, "module:function"
    No record is imported: those of families with devices take all kinds that there are, and none after.
    """
    if name in _PLACES:
        folder = f"{_FOLDERS}.{name}"
        known: Names | None = load_object(f"{folder}.names:NAMES") if build.startswith(f"{folder}.") else None
        return known
    return _OWN[name].names if name in _OWN else None


def family_name(name: str) -> str:
    """Name of a family for one of its second names; any other name as it is."""
    return _FORMER.get(name, name)


def list_families() -> tuple[str, ...]:
    """Names of all known families, sorted."""
    return tuple(sorted({*_PLACES, *_OWN}))
