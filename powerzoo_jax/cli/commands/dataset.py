"""`dataset`: episodes of a policy as data for offline learning, in arrays or in Minari's store."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from powerzoo_jax.base.errors import SettingsError, missing_extra
from powerzoo_jax.base.files.results import file_name
from powerzoo_jax.cli.commands.evaluate import refuse_folder
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.runs import Run, is_run, open_run
from powerzoo_jax.cli.selection import policies_of_run
from powerzoo_jax.cli.table import STDOUT, say, working, write_json
from powerzoo_jax.envs import Sim
from powerzoo_jax.oracle import Policy, baseline_policy
from powerzoo_jax.rl import OfflineData, record_offline, save_offline, to_minari
from powerzoo_jax.rl.zoo import ZOO, load_policy
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import all_starts, episode_keys, seeded_starts

RULE = "rule"
ENVIRONMENT = "powerzoo_compat.gymnasium_view"  # builds a task by name, without its id being registered


class Recorded(NamedTuple):
    """A policy on a task.

    keywords:  of `make`, beside the split
    """

    sim: Sim
    name: str
    policy: Policy
    keywords: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Play the episodes and write them."""
    if options.minari is not None:
        _require_minari(options)
    with working(f"playing {options.what}, split {options.split}"):
        sim, name, policy, keywords = _chosen(options)
        data = record_offline(
            sim, policy.act, n_episodes=options.episodes, seed=options.seed, carry=policy.carry, policy=name
        )
    size = f"{len(data.lengths)} episodes, {len(data.rewards)} steps, mean return {data.returns.mean():.4g}"
    if options.minari is not None:
        target = to_minari(data, options.minari, env=_environment(data, keywords)).storage.data_path
        told = f"minari.load_dataset({options.minari!r}), in {target}"
    else:
        target = save_offline(options.out or Path("results") / f"{file_name(sim.spec.id, name)}.npz", data)
        told = f"{target}, {target.stat().st_size / 1e6:.1f} MB. Read it with powerzoo_jax.rl.load_offline."
    if options.json:
        write_json(_document(sim, data, name, str(target)), STDOUT)
    else:
        say(f"{size}: {told}")
    return 0


def _document(sim: Sim, data: OfflineData, policy: str, file: str) -> dict[str, Any]:
    return {
        "task": sim.spec.id,
        "split": sim.spec.split,
        "policy": policy,
        "episodes": len(data.lengths),
        "steps": len(data.rewards),
        "mean_return": float(data.returns.mean()),
        "file": file,
    }


def _require_minari(options: argparse.Namespace) -> None:
    """Refuse before anything is played."""
    if options.out is not None:
        raise SettingsError("--out and --minari exclude each other: Minari has a store of its own. Give one of them.")
    if importlib.util.find_spec("minari") is None:
        raise ImportError(missing_extra("A data set for Minari", "minari", "minari"))


def _chosen(options: argparse.Namespace) -> Recorded:
    """Policy of the command line on its task, for the episodes asked for."""
    path = Path(options.what)
    run = open_run(path) if is_run(path) else None
    if run is not None and options.policy is None:
        return _of_run(options, run)
    if run is not None:
        raise SettingsError(f"--policy: the run {path} acts itself. Give its task in place of the run, or no --policy.")
    refuse_folder(path)
    name = options.policy or RULE
    if is_run(Path(name)):
        trained = open_run(Path(name))
        if trained.config.task != options.what or options.keywords:
            raise SettingsError(
                f"--policy {name}: a run plays the task and keywords that it was trained with. "
                f"Write powerzoo-jax dataset {name}."
            )
        return _of_run(options, trained)
    keywords = parse_keywords(options.keywords)
    sim = make(options.what, split=options.split, **keywords)
    if name == ZOO:
        return Recorded(sim, name, Policy(load_policy(sim.spec.id, sim)), keywords)
    count = options.episodes
    draws = all_starts(sim) if count is None else seeded_starts(sim, count, options.seed)
    policy = baseline_policy(sim, name, draws, episode_keys(options.seed, draws.load_row.shape[0]))
    return Recorded(sim, name, policy, keywords)


def _of_run(options: argparse.Namespace, run: Run) -> Recorded:
    if options.keywords:
        raise SettingsError(f"--keyword: the run {run.folder} keeps the keywords that it was trained with.")
    policy = Policy(policies_of_run(run)[0])  # of the first seed
    return Recorded(run.make(options.split), run.config.algorithm, policy, parse_keywords(run.keywords))


def _environment(data: OfflineData, keywords: dict[str, Any]) -> Any:
    """Gymnasium's description of the task's environment, so that Minari can build it; None with several agents."""
    if len(data.about["agents"]) > 1 or importlib.util.find_spec("powerzoo_compat") is None:
        return None
    from gymnasium.envs.registration import EnvSpec

    told = data.about
    title = "".join(word.capitalize() for word in told["task"].split("_"))
    given = {"name": told["task"], "split": told["split"], "version": told["version"], **keywords}
    return EnvSpec(f"PowerZooJax/{title}-v{told['version']}", f"{ENVIRONMENT}:make_env", kwargs=given)
