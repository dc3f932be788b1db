"""A plain replay of Grid2Op's rules for the tests, in NumPy, without Grid2Op: the oracle of `rules="grid2op"`.

One episode of a world's folder at a time, step by step: legality, the row of the series, storages, curtailment,
topology, redispatch, maintenance and hazards, attacks, flow with protections, counters, rewards. What Grid2Op keeps in
float32 is float32 here, so that thresholds are met in the same step.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.references.grid2op_flow import DATA, REDISPATCH, Flow, GameOver, Injections, solve_flow
from tests.references.grid2op_redispatch import Programme, follow
from tests.references.grid2op_world import DT_S, Episode, Grid, World

F = np.float32
HOURS = F(DT_S) / F(3600)
ZERO = 1e-7  # MW or a share below which Grid2Op takes a number for none
IDLE_MW = 0.01  # below which nothing is to be balanced
SLACK_MW = 1e-4  # by which bounds of the redispatch are wider, both sides together
REWARDS = ("redisp", "l2rpn", "lines", "duration")


class Action(NamedTuple):
    """An action as Grid2Op keeps it.

    set_line:  (L,) -1 out, +1 in, 0 as it is          switch_line: (L,) bool
    set_bus:   (D,) -1, 1, 2, 0 as it is                change_bus:  (D,) bool
    redispatch: (G,) [MW]    curtail: (G,) share of Pmax, -1 as it is    storage: (S,) [MW], charging positive
    """

    set_line: np.ndarray
    switch_line: np.ndarray
    set_bus: np.ndarray
    change_bus: np.ndarray
    redispatch: np.ndarray
    curtail: np.ndarray
    storage: np.ndarray


def nothing(grid: Grid) -> Action:
    """The action that changes nothing."""
    lines, places, units = grid.n_line, len(grid.sub_of_place), len(grid.sub["unit"])
    return Action(
        np.zeros(lines, int),
        np.zeros(lines, bool),
        np.zeros(places, int),
        np.zeros(places, bool),
        np.zeros(units, F),
        np.full(units, -1, F),
        np.zeros(len(grid.sub["storage"]), F),
    )


@dataclass
class State:
    """State between two steps; float32 but for set-points of voltage.

    topology, last_busbar: (D,)     in_service: (L,) as last solved     cooldown_line: (L,)   cooldown_sub: (N,)
    overflow, engaged: (L,) steps above the limit, and above the limit of the protection
    p_unit, v_unit, p_load, q_load: injections in force, dispatch included     p_solved: (G,)
    target, actual: (G,) [MW] dispatch     ordered: (G,) bool     scheduled: (G,) last set-points with dispatch
    limit: (G,) share of Pmax              curtailed, curtailed_before: [MW] change of this step, sum of the last
    charge: (S,) [MWh]    charge_before    storage: (S,) [MW]     stored, stored_before: [MW] alike
    """

    topology: np.ndarray
    last_busbar: np.ndarray
    in_service: np.ndarray
    cooldown_line: np.ndarray
    cooldown_sub: np.ndarray
    overflow: np.ndarray
    engaged: np.ndarray
    p_unit: np.ndarray
    v_unit: np.ndarray
    p_load: np.ndarray
    q_load: np.ndarray
    p_solved: np.ndarray
    target: np.ndarray
    actual: np.ndarray
    ordered: np.ndarray
    scheduled: np.ndarray
    limit: np.ndarray
    charge: np.ndarray
    charge_before: np.ndarray
    storage: np.ndarray
    curtailed: Any = 0.0
    curtailed_before: Any = 0.0
    stored: Any = 0.0
    stored_before: Any = 0.0


@dataclass
class Outcome:
    """Facts of a step: flags, `tripped` (L,) round of the cascade or -1, `end` and `reason` once it is over."""

    illegal: bool = False
    ambiguous: bool = False
    refused_dispatch: bool = False
    tripped: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    end: str = ""
    reason: str = ""

    @property
    def failed(self) -> bool:
        return self.end not in ("", DATA)


class Replay:
    """An environment of a world: `reset`, `step` and `simulate`, each with an observation by Grid2Op's names.

    The observation is None where a step ends before the data do.
    """

    def __init__(self, world: World) -> None:
        self.world, self.grid = world, world.grid
        self.observation: dict[str, np.ndarray] | None = None

    def reset(self, name: str, seed: int | None = None) -> dict[str, np.ndarray] | None:
        """First observation of an episode: row 0 without counting.

        seed:  of Grid2Op's `env.reset(seed=...)`, for worlds that draw their maintenance
        """
        world, grid = self.world, self.grid
        self.episode, self.row, self.steps, self.first = world.read_episode(name, seed), -1, -1, True
        p, (places, units, lines) = world.parameters, (len(grid.sub_of_place), len(grid.sub["unit"]), grid.n_line)
        extra = world.loss_mw * HOURS if p["ACTIVATE_STORAGE_LOSS"] else F(0)
        charge = F(p["INIT_STORAGE_CAPACITY"]) * world.e_max_mwh + extra
        zeros = np.zeros(units, F)
        self.state = State(
            topology=np.ones(places, int),
            last_busbar=np.ones(places, int),
            in_service=np.ones(lines, bool),
            cooldown_line=np.zeros(lines, int),
            cooldown_sub=np.zeros(grid.n_sub, int),
            overflow=np.zeros(lines, int),
            engaged=np.zeros(lines, int),
            p_unit=grid.p_unit_mw.astype(F),
            v_unit=grid.v_unit_pu.copy(),
            p_load=grid.s_load.real.astype(F),
            q_load=grid.s_load.imag.astype(F),
            p_solved=zeros.copy(),
            target=zeros.copy(),
            actual=zeros.copy(),
            ordered=np.zeros(units, bool),
            scheduled=zeros.copy(),
            limit=np.ones(units, F),
            charge=charge.astype(F),
            charge_before=charge.astype(F),
            storage=np.zeros(len(charge), F),
        )
        self.step(nothing(grid))
        self.first = False
        if self.observation is not None:
            for key in ("cooldown_line", "cooldown_sub", "overflow", "engaged"):
                getattr(self.state, key)[:] = 0
            self.observation = self._observe()
        return self.observation

    def step(
        self, action: Action, attacked: np.ndarray | None = None, duration: int = 0
    ) -> tuple[dict[str, np.ndarray] | None, bool]:
        """Observation after an action, and whether the episode is over; `outcome` says how.

        attacked:  (L,) bool, lines of an attack that lasts `duration` more steps
        """
        self.steps += 1
        self.row += 1
        self.outcome = Outcome(ambiguous=self._ambiguous(action))
        if self.outcome.ambiguous:
            action = nothing(self.grid)
        lines, subs = self._impact(action)
        if not self.first and not self._legal(action, lines, subs):
            self.outcome.illegal = True
            action = nothing(self.grid)
            lines, subs = self._impact(action)
        try:
            self._inject(action)
            self._open(attacked, duration)
            flow = self._cascade()
        except GameOver as over:
            self.outcome.end, self.outcome.reason, self.observation = over.end, str(over), None
            self.outcome.refused_dispatch |= over.end == REDISPATCH
            return None, True
        self._count(flow, lines, subs)
        self.flow = flow
        self.observation = self._observe()
        if self.row >= self.episode.steps:
            self.outcome.end = DATA
        return self.observation, self.outcome.end == DATA

    # Legality

    def _ambiguous(self, a: Action) -> bool:
        """Whether an action contradicts itself or orders what an element cannot do."""
        w, place = self.world, self.grid.place
        ordered, limited = np.abs(a.redispatch) >= ZERO, np.abs(a.curtail + 1) >= ZERO
        ends = [a.set_bus[place[end]] for end in ("or", "ex")]
        changed = a.change_bus[place["or"]] | a.change_bus[place["ex"]]
        off, on = a.set_line == -1, a.set_line == 1
        return bool(
            (a.set_line[a.switch_line] != 0).any()
            or (ordered & ~w.redispatchable).any()
            or (ordered & ((a.redispatch > w.ramp_up_mw) | (-a.redispatch > w.ramp_down_mw))).any()
            or ((a.storage < -w.produced_mw) | (a.storage > w.absorbed_mw)).any()
            or (limited & ((a.curtail < 0) | (a.curtail > 1) | ~w.renewable)).any()
            or (a.set_bus[a.change_bus] != 0).any()
            or ((a.set_bus < -1) | (a.set_bus > 2)).any()
            or (((ends[0] == -1) & (ends[1] > 0)) | ((ends[1] == -1) & (ends[0] > 0))).any()
            or any((end[off] > 0).any() or (end[on] == -1).any() for end in ends)
            or changed[off | on].any()
        )

    def _impact(self, a: Action) -> tuple[np.ndarray, np.ndarray]:
        """Lines (L,) and substations (N,) that an action counts as touching, by the status before the step."""
        out, place = ~self.state.in_service, self.grid.place
        lines = a.switch_line | (a.set_line != 0)
        moved = a.change_bus | (a.set_bus != 0)
        ends = (place["or"], place["ex"])
        known = [lines & out]
        for beyond, status in ((1, out), (-1, ~out)):
            for end in ends:
                known.append((a.set_bus[end] * beyond > 0) & status)
                lines = lines | known[-1]
        for which in known:
            for end in ends:
                moved[end[which]] = False
        subs = np.zeros(self.grid.n_sub, bool)
        subs[self.grid.sub_of_place[moved]] = True
        return lines, subs

    def _legal(self, a: Action, lines: np.ndarray, subs: np.ndarray) -> bool:
        w, s, p = self.world, self.state, self.world.parameters
        if w.always_legal:
            return True
        place = self.grid.place["storage"]
        away = (s.topology[place] < 0) & (a.set_bus[place] <= 0) & ~a.change_bus[place]
        if (np.abs(a.storage[away]) >= ZERO).any():
            return False
        for area in w.areas or [range(self.grid.n_sub)]:
            inside = np.isin(np.arange(self.grid.n_sub), list(area))
            if (lines & inside[self.grid.sub["or"]]).sum() > p["MAX_LINE_STATUS_CHANGED"]:
                return False
            if (subs & inside).sum() > p["MAX_SUB_CHANGED"]:
                return False
        return not ((s.cooldown_line[lines] > 0).any() or (s.cooldown_sub[subs] > 0).any())

    # Topology

    def _set_lines(self, order: np.ndarray) -> None:
        """Opens lines of order -1; ends that are out of lines of order +1 return to their last busbar."""
        s = self.state
        for place in (self.grid.place["or"], self.grid.place["ex"]):
            s.topology[place[order == -1]] = -1
            back = place[order == 1]
            back = back[s.topology[back] < 0]
            s.topology[back] = s.last_busbar[back]

    def _apply_topology(self, a: Action) -> None:
        s, ends = self.state, (self.grid.place["or"], self.grid.place["ex"])
        closed = (s.topology[ends[0]] > 0) | (s.topology[ends[1]] > 0)
        self._set_lines(np.where(a.switch_line, np.where(closed, -1, 1), 0))
        self._set_lines(a.set_line)
        if not a.change_bus.any() and not a.set_bus.any():
            return
        before = [s.topology[end] for end in ends]
        flipped = a.change_bus & (s.topology > 0)
        s.topology[flipped] = 3 - s.topology[flipped]
        s.topology[a.set_bus != 0] = a.set_bus[a.set_bus != 0]
        after = [s.topology[end] for end in ends]
        order = np.where(np.any([x == -1 for x in (*before, *after)], axis=0), -1, 0)
        order[(before[0] == -1) & ((after[0] >= 1) | (after[1] >= 1))] = 1
        self._set_lines(order)

    def _open(self, attacked: np.ndarray | None, duration: int) -> None:
        """Maintenance, hazards, then an attack: each opens its lines after the action."""
        out = np.zeros(self.grid.n_line, bool)
        for name in ("maintenance", "hazards"):
            if name in self.episode.rows:
                out |= self.episode.rows[name][self.row]
        if attacked is not None and attacked.any():
            cooldown = self.state.cooldown_line
            cooldown[attacked] = np.maximum(duration, cooldown[attacked])
            out |= attacked
        self._set_lines(-out.astype(int))

    # Injections

    def _row(self, name: str, into: np.ndarray) -> np.ndarray:
        """Values in force where the row of the episode has a number, elsewhere what was."""
        rows = self.episode.rows.get(name)
        return into if rows is None else np.where(np.isfinite(rows[self.row]), rows[self.row], into)

    def _inject(self, a: Action) -> None:
        w, s = self.world, self.state
        scheduled = self._row("prod_p", s.p_solved)
        self._store(a.storage)
        limited = False
        if w.has_units:
            scheduled, limited = self._curtail(a.curtail, scheduled)
        self._apply_topology(a)
        if w.has_units:
            self._redispatch(a.redispatch, *self._disconnected(scheduled))
        s.p_load, s.q_load = self._row("load_p", s.p_load), self._row("load_q", s.q_load)
        s.p_unit = scheduled.copy() if limited else self._row("prod_p", s.p_unit).copy()
        s.p_unit[np.abs(s.actual) >= ZERO] += s.actual[np.abs(s.actual) >= ZERO]
        if "prod_v" in self.episode.rows:
            kv = self.episode.rows["prod_v"][self.row]
            pu = kv.astype(F) / self.grid.vn_kv[self.grid.sub["unit"]].astype(F)
            s.v_unit = np.where(np.isfinite(kv), pu, s.v_unit).astype(float)
        s.scheduled = (scheduled + s.actual).astype(F)

    def _store(self, order: np.ndarray) -> None:
        """Charge after an order; what does not fit is cut from the power, and `stored` is the change of its sum."""
        w, s, h = self.world, self.state, HOURS
        loss = self.world.parameters["ACTIVATE_STORAGE_LOSS"]
        s.charge_before = s.charge.copy()
        s.storage = np.zeros_like(s.storage)
        total, active = F(0), np.isfinite(order) & (np.abs(order) >= ZERO)
        if active.any():
            into, out = (w.charging, w.discharging) if loss else (np.ones_like(s.charge), np.ones_like(s.charge))
            share = np.where(order > 0, into, np.where(order < 0, 1 / out, 1.0))
            s.charge[active] = (s.charge[active] + order[active] * h * share[active]).astype(F)
            s.storage[active] = order[active]
            over, under = s.charge > w.e_max_mwh, s.charge < w.e_min_mwh
            s.storage[over] -= (s.charge[over] - w.e_max_mwh[over]) / h / into[over]
            s.storage[under] -= (s.charge[under] - w.e_min_mwh[under]) / h * out[under]
            s.charge = np.clip(s.charge, w.e_min_mwh, w.e_max_mwh)
            total = s.storage.sum()
        s.stored, s.stored_before = total - s.stored_before, total
        if loss:
            s.charge = np.maximum(s.charge - w.loss_mw * h, F(0)).astype(F)

    def _curtail(self, order: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, bool]:
        """Set-points under the limits in force, and whether there are any; `curtailed` is the change of their sum."""
        w, s = self.world, self.state
        if (np.abs(order + 1) < ZERO).all() and (np.abs(s.limit - 1) < ZERO).all():
            s.curtailed, s.curtailed_before = -s.curtailed_before, F(0)
            return asked, False
        s.limit = np.where((order != -1) & w.renewable, order, s.limit).astype(F)
        held = np.abs(s.limit - 1) >= ZERO
        given = asked.astype(F)
        given[held] = np.minimum(w.p_max_mw[held] * s.limit[held], asked[held])
        total = F(given[held].sum() - asked[held].sum())
        s.curtailed, s.curtailed_before = total - s.curtailed_before, total
        return given, True

    def _disconnected(self, scheduled: np.ndarray) -> tuple[np.ndarray, float]:
        """Set-points without units that are out, and the power they leave, less that of loads that are out [MW].

        The redispatch comes before the flow, which would fail: it may end the episode first.
        """
        s, place = self.state, self.grid.place
        unit, load = s.topology[place["unit"]] < 0, s.topology[place["load"]] < 0
        lost = F(scheduled[unit].sum() + s.actual[unit].sum() - self._row("load_p", s.p_load)[load].sum())
        s.actual = np.where(unit, F(0), s.actual)
        return np.where(unit, F(0), scheduled), float(lost)

    def _redispatch(self, order: np.ndarray, scheduled: np.ndarray, lost: float) -> None:
        """Change of dispatch towards the targets that balances storages and curtailment within the ramps."""
        w, s = self.world, self.state
        given = np.abs(order) > ZERO
        s.target = np.where(s.ordered, s.target + order, np.where(given, s.actual + order, s.target)).astype(F)
        s.ordered = s.ordered | given
        span = w.p_max_mw - w.p_min_mw
        idle = not (given.any() or (np.abs(s.target) > ZERO).any() or (np.abs(s.actual) > ZERO).any())
        if not idle and (np.abs(s.target) > span).any():
            s.target = s.target - order
            self.outcome.refused_dispatch = True
            self._take_back_storage()
        missing = np.abs(s.actual - s.target).max()
        if max(abs(s.actual.sum()), missing, abs(s.stored), abs(s.curtailed), abs(lost)) < IDLE_MW:
            return
        total, rise = float(s.stored) - float(s.curtailed) + lost, scheduled - (s.scheduled - s.actual)
        taking = w.redispatchable & ((scheduled > 0) | (np.abs(s.actual) >= ZERO) | (s.target != s.actual))
        if not self._can_balance(taking, rise, total):
            taking = w.redispatchable
            if not self._can_balance(taking, rise, total):
                raise GameOver(REDISPATCH, "the ramps of the units cannot balance storages and curtailment")
        programme, scale = self._programme(taking, scheduled, rise, total)
        change = follow(programme)
        if change is None:
            raise GameOver(REDISPATCH, "the redispatch has no solution")
        s.actual[taking] = (s.actual[taking] + change * scale).astype(F)

    def _take_back_storage(self) -> None:
        """Charge before the order; the power stays in force, as Grid2Op has it."""
        s = self.state
        s.charge = s.charge_before.copy()
        s.stored = s.stored - s.stored_before
        if self.world.parameters["ACTIVATE_STORAGE_LOSS"]:
            s.charge = np.maximum(s.charge - self.world.loss_mw * HOURS, F(0)).astype(F)

    def _can_balance(self, taking: np.ndarray, rise: np.ndarray, total: float) -> bool:
        w, last = self.world, self.state.scheduled
        up = np.minimum(w.p_max_mw - last, w.ramp_up_mw)[taking].sum()
        down = np.maximum(w.p_min_mw - last, -w.ramp_down_mw)[taking].sum()
        return bool(down <= rise[taking].sum() + total <= up)

    def _programme(
        self, taking: np.ndarray, scheduled: np.ndarray, rise: np.ndarray, total: float
    ) -> tuple[Programme, float]:
        """The programme of the units that take part, in multiples of the largest dispatch, and that scale [MW]."""
        w, s, k = self.world, self.state, taking
        weight = (1 / (w.ramp_up_mw + w.ramp_down_mw + F(SLACK_MW)))[k].astype(float)
        weight /= weight.sum()
        power = scheduled[k] + s.actual[k]
        low = np.maximum(w.p_min_mw[k] - power, -w.ramp_down_mw[k] - rise[k]).astype(float) - SLACK_MW / 2
        high = np.minimum(w.p_max_mw[k] - power, w.ramp_up_mw[k] - rise[k]).astype(float) + SLACK_MW / 2
        scale = float(max(np.abs(s.actual).max(), 1.0))
        target = ((s.target - s.actual)[k] / F(scale)).astype(float)
        ordered = s.ordered[k] if s.ordered[k].any() else np.ones(k.sum(), bool)
        objective = float(np.round(max(0.5 * np.abs(target[ordered]).sum() ** 2, 1.0), 4))
        start = np.zeros(k.sum())
        if (np.abs(s.target) >= ZERO).any() or s.ordered.any():
            wanted = (np.abs(s.target[k]) >= ZERO) | s.ordered[k]
            start[wanted] = target[wanted]
            rest = np.abs(start) <= ZERO
            if rest.any():
                shares = (1 / weight[rest]).sum()
                start[rest] = -start.sum() / (weight[rest] * (shares if shares > 0.01 else 1.0))
        else:
            start -= s.actual[k] / F(scale)
        accuracy = max(1e-4 / scale, 1e-6)
        found = Programme(weight, ordered, target, low / scale, high / scale, total / scale, start, objective, accuracy)
        return found, scale

    # Flow, protections, counters

    def _flow(self) -> Flow:
        s = self.state
        given = (s.p_unit, s.v_unit, s.p_load, s.q_load, s.storage)
        return solve_flow(self.grid, s.topology, Injections(*(x.astype(float) for x in given)))

    def _cascade(self) -> Flow:
        """Flow once the protections have opened what they must; a line counts once over all rounds."""
        p, limit, s = self.world.parameters, self.world.limit_a, self.state
        self.outcome.tripped = tripped = np.full(self.grid.n_line, -1)
        counts, counted, flow = s.engaged.copy(), np.zeros(self.grid.n_line, bool), self._flow()
        for round_ in range(self.grid.n_line):
            if p["NO_OVERFLOW_DISCONNECTION"]:
                break
            if not self.first:
                hot = (flow.a_or > F(p["SOFT_OVERFLOW_THRESHOLD"]) * limit) & flow.in_service & ~counted
                counts[hot] += 1
                counted |= hot
            hard = flow.a_or > F(p["HARD_OVERFLOW_THRESHOLD"]) * limit
            opened = (hard | (counts > p["NB_TIMESTEP_OVERFLOW_ALLOWED"])) & flow.in_service
            if not opened.any():
                break
            tripped[opened] = round_
            self._set_lines(-opened.astype(int))
            flow = self._flow()
        return flow

    def _count(self, flow: Flow, lines: np.ndarray, subs: np.ndarray) -> None:
        p, s, e, t = self.world.parameters, self.state, self.episode, self.row
        s.in_service, s.p_solved = flow.in_service, flow.gen_p
        s.cooldown_line = np.maximum(s.cooldown_line - 1, 0)
        s.cooldown_line[self.outcome.tripped >= 0] = p["NB_TIMESTEP_RECONNECTION"]
        if e.to_maintenance is not None and e.maintenance_left is not None:
            left = np.where(e.to_maintenance[t] == 0, e.maintenance_left[t], 0)
            s.cooldown_line = np.maximum(s.cooldown_line, left)
        if e.hazard_left is not None:
            s.cooldown_line = np.maximum(s.cooldown_line, e.hazard_left[t])
        limit = self.world.limit_a
        s.overflow = np.where(flow.a_or > limit, s.overflow + 1, 0)
        s.engaged = np.where(flow.a_or > limit * F(p["SOFT_OVERFLOW_THRESHOLD"]), s.engaged + 1, 0)
        s.cooldown_line = np.where(lines, np.maximum(s.cooldown_line, p["NB_TIMESTEP_COOLDOWN_LINE"]), s.cooldown_line)
        if p["NB_TIMESTEP_COOLDOWN_SUB"] > 0:
            s.cooldown_sub = np.where(subs, p["NB_TIMESTEP_COOLDOWN_SUB"], np.maximum(s.cooldown_sub - 1, 0))
        s.last_busbar = np.where(s.topology > 0, s.topology, s.last_busbar)

    def _observe(self) -> dict[str, np.ndarray]:
        s, e, flow = self.state, self.episode, self.flow
        found = {
            **{key: value for key, value in flow._asdict().items() if key != "in_service"},
            "line_status": s.in_service,
            "topo_vect": s.topology.copy(),
            "rho": (flow.a_or / self.world.limit_a).astype(F),
            "time_before_cooldown_line": s.cooldown_line.copy(),
            "time_before_cooldown_sub": s.cooldown_sub.copy(),
            "timestep_overflow": s.overflow.copy(),
            "target_dispatch": s.target.copy(),
            "actual_dispatch": s.actual.copy(),
            "storage_charge": s.charge.copy(),
            "storage_power": s.storage.copy(),
            "load_p": s.p_load,
            "load_q": s.q_load,
        }
        if e.to_maintenance is not None and e.maintenance_left is not None:
            found["time_next_maintenance"] = e.to_maintenance[self.row]
            found["duration_next_maintenance"] = e.maintenance_left[self.row]
        return found

    # Simulation and rewards

    def simulate(self, action: Action, horizon: int = 1) -> tuple[dict[str, np.ndarray] | None, bool, Outcome]:
        """Observation, end and outcome of an action on a forecast; the replay itself stays as it is.

        horizon:  row of the forecast, 0 = the present injections
        """
        assert self.observation is not None, "the episode is over"
        other, t, e = copy.copy(self), self.row, self.episode
        other.state = copy.deepcopy(self.state)
        s, grid = other.state, self.grid
        rows = {"load_p": s.p_load, "load_q": s.q_load, "prod_p": self.flow.gen_p, "prod_v": self.flow.gen_v}
        if horizon > 0:
            rows |= {key: found[self.world.horizons * t + horizon - 1] for key, found in e.forecast.items()}
        if horizon > 1:
            hot = self.observation["rho"] > 1
            s.cooldown_line = np.maximum(s.cooldown_line - (horizon - 1), 0)
            s.cooldown_sub = np.maximum(s.cooldown_sub - (horizon - 1), 0)
            s.overflow[hot] += horizon - 1
            s.engaged[hot] += horizon - 1
        time = left = None
        if e.to_maintenance is not None and e.maintenance_left is not None and horizon > 0:
            now, length = e.to_maintenance[t], e.maintenance_left[t]
            begins, over = now == horizon, (now != -1) & (now + length <= horizon)
            lasts = (now != -1) & (now <= horizon) & ~over & ~begins
            time = np.where(over, -1, np.where(lasts | begins, 0, np.maximum(now - horizon, -1)))[None]
            left = np.where(over, 0, length - np.where(lasts, horizon - now, 0))[None]
            out = np.zeros(grid.n_line, int)
            out[lasts if lasts.any() else begins] = -1  # one that lasts hides those that begin, as Grid2Op has it
            other._set_lines(out)
        one = {key: np.asarray(value)[None] for key, value in rows.items()}
        other.episode = Episode(e.name, one, time, left, None, {})
        other.row, other.grid = -1, self.world.forecast_grid
        found, _ = other.step(action)
        return found, other.outcome.failed, other.outcome

    def rewards(self) -> dict[str, float]:
        """RedispReward, L2RPNReward, LinesCapacityReward and EpisodeDurationReward of the last step."""
        w, s, out = self.world, self.state, self.outcome
        bad, done = out.illegal or out.ambiguous or out.refused_dispatch, out.end != ""
        found = {"l2rpn": 0.0, "lines": 0.0, "duration": self.steps / self.episode.steps if done else 0.0}
        if w.has_units:
            found["redisp"] = -10.0 if out.failed or (done and bad) else 0.0
        if self.observation is None:
            return found
        if w.has_units and not bad:
            cost = w.cost[s.p_solved > 0].max()
            hours, load = HOURS, s.p_load.sum()
            most = (F(0.05) + F(5)) * w.p_max_mw.sum(dtype=F) * w.cost.max() * hours
            paid = (self.flow.gen_p.sum() - load) + F(5) * np.abs(s.actual).sum() + np.abs(s.storage).sum()
            found["redisp"] = float((most - paid * cost * hours) / load)
        if not done:
            use = np.minimum(self.flow.a_or / (w.limit_a + F(0.1)), F(1))
            found["l2rpn"] = float(np.maximum(F(1) - use**2, 0).sum())
        if not bad:
            on = s.in_service
            found["lines"] = float((on.sum() - np.clip(self.observation["rho"][on].sum(), 0, on.sum())) / on.sum())
        return found
