"""`export`: a trained policy as a StableHLO or ONNX program with the card of what goes in and out, or for the zoo."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.files.results import file_name, write_text, writing
from powerzoo_jax.cli.commands.evaluate import score_trained, shipped_ends
from powerzoo_jax.cli.runs import Run, as_acts, load_state, open_run
from powerzoo_jax.cli.selection import chosen_weights, planner_seen
from powerzoo_jax.cli.table import STDOUT, say, working, write_json
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.rl.export import PLATFORMS, export_policy, memory_of
from powerzoo_jax.rl.networks.split import summed_repetitions
from powerzoo_jax.rl.onnx import OPSET, onnx_policy
from powerzoo_jax.rl.training.config import Config
from powerzoo_jax.rl.zoo import CARD, FIRST, FOLDERS, SUFFIX, ZOO, read_card, rounded, save_policy, spec_of
from powerzoo_jax.tasks.score import SEED, Evaluation, evaluate

STABLEHLO, ONNX = "stablehlo", "onnx"
SPLITS = ("val", "test")  # that a card of the zoo tells of


def run(options: argparse.Namespace) -> int:
    """Write the policy in the form asked for, and its card beside it."""
    run = open_run(options.run_folder)
    if not 0 <= options.row < run.rows:
        raise SettingsError(f"--row {options.row}: the run has rows 0 to {run.rows - 1}, one a seed. Give one of them.")
    return (_write_entry if options.format == ZOO else _write_program)(options, run)


def _policy_of(run: Run, sim: Sim, row: int) -> Any:
    """Weights and scaling of one policy of a run."""
    weights = chosen_weights(run, sim, load_state(run, sim)[0])
    return jax.tree.map(lambda x: x[row], weights)


def _act_of(run: Run, sim: Sim, policy: Any) -> Act:
    (act,) = as_acts(replace(run, seeds=1, grid=()), sim, jax.tree.map(lambda x: x[None], policy))
    return act


def _require_free(target: Path, card: Path) -> None:
    """Raise SettingsError where the card of the exported policy would overwrite a file that is no card."""
    if card == target or (card.exists() and not target.exists()):
        raise SettingsError(f"--out {target}: its card would replace {card}, which is none. Choose another name.")


def _write_program(options: argparse.Namespace, run: Run) -> int:
    """Write a program of another format and the card of what goes in and out."""
    target = options.out or run.folder / f"policy.{options.format}"
    beside = target.with_suffix(".json")
    _require_free(target, beside)
    sim = run.make()
    act = _act_of(run, sim, _policy_of(run, sim, options.row))
    where: dict[str, Any]
    if options.format == ONNX:
        with working("writing the policy as an ONNX graph"):
            program, where = onnx_policy(sim, act), {"opset": OPSET}
    else:
        with working(f"lowering the policy for {', '.join(PLATFORMS)}"):
            program, where = export_policy(sim, act), {"platforms": list(PLATFORMS)}
    with writing(target) as file:
        file.write(program)
    seen = jax.eval_shape(sim.init, jax.random.key(0))[1]
    action = jax.eval_shape(lambda obs: act(first_carry(act, ()), obs, jax.random.key(0))[1], seen)
    card = {
        "task": sim.spec.id,
        "version": sim.spec.version,
        "algorithm": run.config.algorithm,
        "agents": list(sim.spec.agents),
        "observation": ["lanes", *seen.shape],
        "dtype": str(seen.dtype),
        "memory": [["lanes", *x.shape] for x in memory_of(act)],
        "action": ["lanes", *action.shape],
        **where,
        "jax": metadata.version("jax"),
    }
    write_text(beside, json.dumps(card, indent=2) + "\n")
    if options.json:
        write_json({"file": str(target), "card": card}, STDOUT)
    else:
        what = f"for {', '.join(PLATFORMS)}" if options.format == STABLEHLO else f"in ONNX, operators of set {OPSET}"
        say(f"{target}: {len(program) / 1e3:.0f} kB {what}; what goes in and out is in {beside}")
    return 0


def _write_entry(options: argparse.Namespace, run: Run) -> int:
    """Write a policy as a file of the zoo: float16 weights, and a card with the scores of just these."""
    target = options.out or run.folder / f"{file_name(run.config.task)}{SUFFIX}"
    if target.suffix != SUFFIX:
        raise SettingsError(f"--out {target}: a file of the zoo ends in {SUFFIX}. Give it that ending.")
    _require_free(target, target.with_suffix(CARD))
    sim = run.make()
    policy = _policy_of(run, sim, options.row)
    policy = rounded(policy.replace(actor=summed_repetitions(sim, policy.actor)))
    act = _act_of(run, sim, policy)
    with working(f"playing {', '.join(SPLITS)} with the policy in float16"):
        about = _about(options, run, act)
    save_policy(target, policy, about)
    card = read_card(target)
    if options.json:
        write_json({"file": str(target), "card": card}, STDOUT)
    else:
        test = card["scores"]["test"]
        told = "keeps every budget" if test["feasible"] else "breaks a budget"
        say(
            f"{target}: {target.stat().st_size / 1e3:.1f} kB, mean return {test['return']:.4g} on test, {told}; its "
            f"card is {target.with_suffix(CARD)}. Play it: powerzoo_jax.load_policy({str(target)!r})"
        )
    return 0


def _about(options: argparse.Namespace, run: Run, act: Act) -> dict[str, Any]:
    """Content of a card: what was trained, and what the policy that is written earns."""
    # settings and seed that a row of a run was trained with
    point = run.points[options.row // run.seeds]
    names = (name for name, _ in run.grid)
    config, seed = replace(run.config, **dict(zip(names, point, strict=True))), run.seed + options.row % run.seeds
    scores, sims = {}, {split: run.make(split) for split in SPLITS}
    for split, sim in sims.items():
        (record,) = score_trained(sim, [act])
        scores[split] = _score(record, shipped_ends(sim))
    first = evaluate(sims["test"], act, n_episodes=FIRST)
    learner, trained = run.learner, run.make()
    return {
        **spec_of(sims["test"]),
        "settings": config.to_dict(),
        "seed": seed,
        "steps": config.updates * learner.batch_steps(config, trained),
        "planner": planner_seen(config),
        "data": first.dataset_hashes,
        "library_version": first.library_version,
        "jax": metadata.version("jax"),
        "commands": _commands(run, config, seed),
        "notes": list(options.note),
        "scores": scores,
        "first": {
            "split": "test",
            "seed": SEED,
            "episodes": first.episodes,
            "returns": first.episode_rewards,
            "costs": first.episode_costs_by_constraint,
        },
    }


def _score(record: Evaluation, ends: tuple[float, float] | None) -> dict[str, Any]:
    return {
        "episodes": record.n_episodes,
        "return": record.mean_reward,
        "gain": record.gain,
        "ends": ends,
        "feasible": record.feasible,
        "costs": record.mean_costs_by_constraint,
        "budgets": record.cost_thresholds,
    }


def _commands(run: Run, config: Config, seed: int) -> list[str]:
    """Command lines that make the entry again, from the settings on the card: those shipped for a task may change."""
    words = ["powerzoo-jax", "train", "SETTINGS.toml", "--seed", str(seed)]
    words += [w for text in run.keywords for w in ("--keyword", text)]
    words += [w for path in run.modules for w in ("--module", path)]
    # an entry of the package is made in a checkout, from which a path is the same for everyone
    folder = FOLDERS[-1].relative_to(FOLDERS[-1].parents[1])
    out = ["powerzoo-jax", "export", "RUN", "--format", ZOO, "--out", str(Path(folder, config.task + SUFFIX))]
    return [shlex.join([*words, "--out", "RUN"]), shlex.join(out)]
