"""`demo`: train two learners on real prices, score them beside rule, causal planner and oracle, plot a day."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from powerzoo_jax.base.tree import take
from powerzoo_jax.cli.commands.evaluate import (
    Score,
    baseline_scores,
    records_of,
    score_policies,
    score_table,
    write_records,
)
from powerzoo_jax.cli.commands.train import INTERRUPTED, StopRequest, Trained, train
from powerzoo_jax.cli.lock import hold
from powerzoo_jax.cli.runs import (
    Run,
    drop_results,
    has_checkpoint,
    is_run,
    load_state,
    open_run,
    require_ours,
    resolve_config,
)
from powerzoo_jax.cli.selection import chosen_policies
from powerzoo_jax.cli.table import STDOUT, write_json
from powerzoo_jax.envs import Sim
from powerzoo_jax.families.feeder.arbitrage.plan import solve_storage
from powerzoo_jax.families.feeder.arbitrage.problem import build_problem
from powerzoo_jax.oracle import evaluate_baseline, plan_act, plan_carry, rule_plan
from powerzoo_jax.plot import plot_episode, record_episode, save_figure
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import all_starts

COMMAND = "powerzoo-jax demo"
TASK = "battery_arbitrage"
NAMES = {"ppo": "PPO", "apg": "analytic gradient"}
SHORT: dict[str, dict[str, Any]] = {"apg": {"updates": 600}}  # a demo takes three minutes; all updates earn more
QUICK = {"ppo": {"total_steps": 50_000}, "apg": {"updates": 5}}
BASELINES = ("random", "rule", "causal", "oracle")
FEEDER_TASK = "marl_der_arbitrage"
FEEDER_BASELINES = ("no_control", "rule", "oracle")
FEW_DAYS = 6  # of the feeder task in a quick demo


def run(options: argparse.Namespace) -> int:
    """Train, score every test day, print one table, write a picture; no other demo writes to the folder meanwhile."""
    with hold(options.out, COMMAND):
        return _run_held(options)


def _run_held(options: argparse.Namespace) -> int:
    clock = time.perf_counter()
    sim, test = make(TASK, split="train"), make(TASK, split="test")
    print(
        f"{TASK}: a battery on the feeder {test.spec.case}, an exact power flow in each of {test.spec.horizon} steps a "
        f"day,\nreal loads (SimBench 2016) and day-ahead prices (Germany 2018)\n"
    )
    trained: dict[str, tuple[Run, Trained]] = {}
    with StopRequest() as stop:
        for algorithm in NAMES:
            # the settings shipped for the task, with fewer updates where these take long, in a folder of the demo's own
            fewer = QUICK if options.quick else SHORT
            config: Any = replace(resolve_config(TASK, algorithm, ()), **fewer.get(algorithm, {}))
            run = Run(options.out / f"demo_{algorithm}", config)
            require_ours(run.folder)
            with hold(run.folder, COMMAND):
                trained[algorithm] = run, _train(run, sim, stop)
            if stop.raised:
                print("stopped; the same command goes on from here", file=sys.stderr)
                return INTERRUPTED
    print(f"\nscoring every day of the test split ({int(test.params.starts.n_start)} days that no learner has seen)\n")
    scores = baseline_scores(test, BASELINES)
    acts = {name: chosen_policies(run, sim, done.state) for name, (run, done) in trained.items()}
    planned = BASELINES.index("causal")
    scores[planned:planned] = [score_policies(test, NAMES[n], act) for n, act in acts.items()]
    print(score_table(test, scores, _speeds(trained)))
    write_records(options.out / f"{TASK}.json", scores)
    picture = _picture(test, scores, {NAMES[n]: act[0] for n, act in acts.items()}, options.out)
    print(f"\npicture of a test day in {picture}, records in {options.out / f'{TASK}.json'}")
    scores_by_task = {TASK: scores, FEEDER_TASK: _feeder_task(options)}
    took = time.perf_counter() - clock
    print(f"{took:.0f} s in all")
    if options.json:
        records = {task: records_of(found) for task, found in scores_by_task.items()}
        write_json({"scores": records, "picture": str(picture), "seconds": took}, STDOUT)
    return 0


def _feeder_task(options: argparse.Namespace) -> list[Score]:
    """Scores of three batteries under a binding voltage band: no control, rule and oracle."""
    sim = make(FEEDER_TASK, split="test")
    draws = all_starts(sim)
    if options.quick:
        draws = take(draws, slice(0, FEW_DAYS))
    played = {name: evaluate_baseline(sim, name, draws=draws) for name in FEEDER_BASELINES}
    ends = played["rule"].mean_reward, played["oracle"].mean_reward
    scores = [Score(name, [record.with_gain(*ends)]) for name, record in played.items()]
    print(
        f"\n{FEEDER_TASK}: three batteries on {sim.spec.case}, whose voltages must stay above "
        f"{float(sim.params.grid.v_min.max()):.2f} pu\n"
    )
    print(score_table(sim, scores))
    write_records(options.out / f"{FEEDER_TASK}.json", scores)
    return scores


def _train(run: Run, sim: Sim, stop: StopRequest) -> Trained:
    """Train from the start, or go on where an interrupted demo with the same settings stopped."""
    resume = False
    if is_run(run.folder):
        same = open_run(run.folder).to_dict() == run.to_dict() and has_checkpoint(run)
        resume = same and load_state(run, sim)[1] < run.config.updates
        if not resume:
            drop_results(run)
    run.write()
    steps = run.learner.batch_steps(run.config, sim)
    name = NAMES[run.config.algorithm]
    print(f"{name}: {run.config.updates} updates of {steps:,} steps on {run.config.lanes} parallel feeders", flush=True)
    done = train(run, sim, resume=resume, stop=stop)
    print(f"{' ' * len(name)}  compile {done.compile_s:.1f} s, training {done.train_s:.1f} s", flush=True)
    return done


def _speeds(trained: dict[str, tuple[Run, Trained]]) -> dict[str, dict[str, str]]:
    rows = {NAMES[name]: done for name, (_, done) in trained.items()}
    return {
        "compile [s]": {name: f"{done.compile_s:.1f}" for name, done in rows.items()},
        "training [s]": {name: f"{done.train_s:.1f}" for name, done in rows.items()},
        "env steps/s": {name: f"{done.steps_per_s:,.0f}" for name, done in rows.items()},
    }


def _picture(test: Sim, scores: list[Score], acts: dict[str, Partial], folder: Path) -> Path:
    """The test day on which the oracle's profit is the median: neither the best day nor the worst."""
    profit = np.asarray(next(s for s in scores if s.name == "oracle").records[0].episode_rewards)
    day = int(np.argsort(profit)[len(profit) // 2])
    drawn = take(all_starts(test), day)
    problem = build_problem(test, drawn)
    plans = {"rule": rule_plan(problem), "oracle": solve_storage(problem).plan_mw}
    key = jax.random.key(day)
    episodes = {name: record_episode(test, act, key, drawn) for name, act in acts.items()}
    for name, plan in plans.items():
        carry = jax.tree.map(lambda x: x[0], plan_carry(test, plan[None]))
        episodes[name] = record_episode(test, Partial(plan_act), key, drawn, carry)
    title = f"{TASK}, day {day + 1} of {len(profit)} of the test split: the oracle earns {profit[day]:.2f} $"
    return save_figure(plot_episode(test, episodes, title), folder / f"{TASK}_day.png")
