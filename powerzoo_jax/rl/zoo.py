"""Zoo of trained policies: the weights of a task's learner in one small file, with a card that says what they are.

A file is an npz archive. `high` and `low` are the two bytes of every weight in float16, side by side because deflate
packs them better so; `moments` (K, 3, F) and `counts` (K,) are those of observations by kind of agent, in float32;
`about` is JSON text, the content of the card beside it.

Example, where only NumPy is installed:
    file = numpy.load("dso.npz")
    about = json.loads(str(file["about"]))  # about["weights"]: name and shape of each array, in order
    weights = numpy.stack([file["low"], file["high"]], axis=1).view("<f2")[:, 0]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError, SettingsError, excerpt, listing, nearest
from powerzoo_jax.base.files.forms import require_form
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.npz import read_npz, require_array, write_npz
from powerzoo_jax.base.textfile import parse_json, require_file
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.rl.training.config import ALGORITHMS, CONFIG_FOLDERS
from powerzoo_jax.tasks import get_spec, make

ZOO = "zoo"  # name of its policies among those of a task, and of its folder
FORMAT = 1
FORM = {
    **{"task": str, "version": int, "keywords": {str: object}, "agents": [str], "observation": [int], "action": [int]},
    **{"settings": {"algorithm": str}, "library_version": str, "kinds": [str], "weights": [[(str, [int])]]},
}  # of what a card must tell before anything is built
DAMAGED = "Restore the file."
SUFFIX, CARD = ".npz", ".md"
ABOUT, HIGH, LOW, MOMENTS, COUNTS = "about", "high", "low", "moments", "counts"
LIMIT_KB = 100.0  # of a shipped file
FIRST = 4  # seeded episodes of split test whose returns and costs a card lists one by one
FOLDERS = tuple(folder / ZOO for folder in CONFIG_FOLDERS)


def load_policy(what: str | Path, sim: Sim | None = None) -> Act:
    """Trained policy of a task, (carry, obs (A, O), key) -> (carry, action (A, U) in [-1, 1]); it acts without noise.

    what:  task id of the zoo, see `list_policies`, or a file that `powerzoo-jax export RUN --format zoo` has written
    sim:   what it is to play, which is compared with what it was trained for; None = the task as registered
    One that remembers brings its carry before an episode, so that `evaluate` and `rollout` take () like any other's.

    Raises ValueError for an unknown task or one that the zoo lacks, SettingsError (a ValueError) where version,
    keywords, agents, or spaces are not those that it was trained for, DataMissing without the file, and DataError for a
    damaged one.

    Example:
        from powerzoo_jax.tasks.score import evaluate
        record = evaluate(sim, load_policy("battery_arbitrage"), n_episodes=2)
    """
    # learners import flax.linen, optax and Orbax, which `import powerzoo_jax` must not pay for
    from powerzoo_jax.rl.training.learners import LEARNERS

    path = find_policy(what)
    arrays, about = _read(path)
    known = get_spec(about["task"])
    if known.version != about["version"]:
        raise SettingsError(
            f"{path} was trained on {about['task']!r} version {about['version']}, and this package has version "
            f"{known.version}, where observations or money may differ. Train again: powerzoo-jax train {about['task']}"
        )
    if sim is None:
        sim = make(about["task"])
    _require_same_task(path, about, sim)
    values = dict(about["settings"])
    algorithm = values.pop("algorithm")
    try:
        config = ALGORITHMS[algorithm].from_dict({k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    except (KeyError, ValueError) as err:
        raise DataError(
            f"{path}: its settings are not those of a learner of this version ({err}); powerzoo_jax "
            f"{about['library_version']} wrote them. Train again: powerzoo-jax train {about['task']}"
        ) from err
    act = LEARNERS[algorithm].act(config, sim, _unpack(path, arrays, about, sim.spaces()[0].low.dtype))
    _require_fit(path, sim, act)
    return act


def list_policies() -> tuple[str, ...]:
    """Ids of the tasks that the zoo has a policy of, sorted."""
    return tuple(sorted({path.stem for folder in FOLDERS for path in folder.glob(f"*{SUFFIX}")}))


def read_card(what: str | Path) -> dict[str, Any]:
    """Content of a card, as plain numbers, lists and strings; arguments and errors as in `load_policy`.

    task, version, keywords, agents, observation, action:  what it plays, and the shapes of both
    settings, seed, steps, planner, data:  how it was trained; data: hash of each series by name
    scores:    split -> mean return, gain, (rule, best) it is measured between, mean costs and budgets of an episode
    first:     returns and costs of the first seeded episodes of split test, one by one
    commands:  that made it

    Example:
        share = read_card("battery_arbitrage")["scores"]["test"]["gain"]
    """
    return _read(find_policy(what))[1]


def find_policy(what: str | Path) -> Path:
    """File of a policy: that of a task in the zoo, or the one given; errors as in `load_policy`."""
    if str(what).endswith(SUFFIX):
        return require_file(Path(what), "policy", "Write one: powerzoo-jax export RUN --format zoo")
    found = [folder / f"{what}{SUFFIX}" for folder in FOLDERS]
    for path in found:
        if path.is_file():
            return path
    get_spec(str(what))
    close = nearest(what, list_policies())
    hint = f" Did you mean {close!r}?" if close else ""
    raise ValueError(
        f"the zoo has no policy for {str(what)!r}.{hint} It has those of {', '.join(list_policies()) or 'no task'}. "
        f"Train one: powerzoo-jax train {what} --out RUN && powerzoo-jax export RUN --format zoo"
    )


def spec_of(sim: Sim) -> dict[str, Any]:
    """Part of a card that says what a policy plays: task, version, keywords, agents and both shapes."""
    space, action = sim.spaces()
    keywords: dict[str, Any] = json.loads(json.dumps(dict(sim.spec.overrides) | {"case": sim.spec.case}, default=str))
    return {
        "task": sim.spec.id,
        "version": sim.spec.version,
        "keywords": keywords,
        "agents": list(sim.spec.agents),
        "observation": list(space.low.shape),
        "action": list(getattr(action, "shape", getattr(getattr(action, "nvec", None), "shape", ()))),
    }


def save_policy(path: Path, policy: Any, about: Mapping[str, Any]) -> None:
    """Write a policy, rounded to float16, and the card beside it.

    policy:  `rl.policies.ActorPolicy`
    about:   content of the card, see `read_card`
    Raises DataError for a weight that float16 does not hold.
    """
    arrays, weights = _pack(policy)
    told = {"format": FORMAT, **about, "kinds": list(policy.scale), "weights": weights}
    _write(path, arrays, told)


def save_card(path: Path, about: Mapping[str, Any]) -> None:
    """Write the card of a policy anew, in its file and beside it; its weights stay. Arguments as in `save_policy`."""
    _write(path, _read(path)[0], about)


def _write(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    write_npz(path, {**arrays, ABOUT: np.array(json.dumps(about))})
    write_text(path.with_suffix(CARD), card_text(about, path.stat().st_size))


def rounded(policy: Any) -> Any:
    """The policy as a file gives it back: weights rounded to float16, moments to float32, in the dtype they had."""
    arrays, weights = _pack(policy)
    about = {"kinds": list(policy.scale), "weights": weights}
    return _unpack(Path(), arrays, about, next(iter(policy.scale.values())).mean.dtype)


def _pack(policy: Any) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Arrays of a file but `about`, and name and shape of each weight."""
    from flax.traverse_util import flatten_dict

    leaves = {name: np.asarray(x) for name, x in flatten_dict(policy.actor, sep="/").items()}
    largest = float(np.finfo(np.float16).max)
    for name, x in leaves.items():
        if x.size and not np.abs(x).max() <= largest:
            raise DataError(f"weight {name} of the policy has {np.abs(x).max():.3g}, beyond float16. Train it again.")
    half = np.concatenate([x.astype("<f2").ravel() for x in leaves.values()])
    low, high = half.view(np.uint8).reshape(-1, 2).T
    moments = np.stack([np.stack([s.mean, s.var, s.floor]) for s in policy.scale.values()]).astype("<f4")
    counts = np.stack([s.count for s in policy.scale.values()]).astype("<f4")
    return {HIGH: high, LOW: low, MOMENTS: moments, COUNTS: counts}, [[k, list(x.shape)] for k, x in leaves.items()]


def _unpack(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any], dtype: Any) -> Any:
    """`rl.policies.ActorPolicy` of a file, in the float type of a task."""
    import jax.numpy as jnp
    from flax.traverse_util import unflatten_dict

    from powerzoo_jax.rl.networks.body import Scale
    from powerzoo_jax.rl.policies import ActorPolicy

    try:
        shapes = {str(name): [*map(int, shape)] for name, shape in about["weights"]}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        low, high = (require_array(arrays, name, "u", (sum(sizes),)) for name in (LOW, HIGH))
        moments = require_array(arrays, MOMENTS, "f", (len(about["kinds"]), 3, None))
        counts = require_array(arrays, COUNTS, "f", (len(about["kinds"]),))
        parts = np.split(np.stack([low, high], axis=1).view("<f2")[:, 0], np.cumsum(sizes)[:-1])
        leaves = {
            name: jnp.asarray(part.reshape(shape), dtype)
            for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }
        actor = unflatten_dict(leaves, sep="/")
    except (TypeError, ValueError) as err:
        told = "its arrays are not of the sizes that it states"
        raise DataError(f"{path} is damaged ({told}: {excerpt(err)}). {DAMAGED}") from err
    scale = {
        kind: Scale(**{k: jnp.asarray(x, dtype) for k, x in zip(("mean", "var", "floor"), rows, strict=True)}, count=n)
        for kind, rows, n in zip(about["kinds"], moments, jnp.asarray(counts, dtype), strict=True)
    }
    return ActorPolicy(actor=actor, scale=scale)


def _require_fit(path: Path, sim: Sim, act: Act) -> None:
    """Trace the policy once: weights and moments must have the shapes of the networks that its settings tell."""
    import jax

    from powerzoo_jax.envs.episode import first_carry

    seen = sim.spaces()[0].low
    try:
        key = jax.eval_shape(lambda: jax.random.key(0))
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            found = jax.eval_shape(lambda obs, key: act(first_carry(act, ()), obs, key)[1], seen, key)
    except Exception as err:  # networks complain of foreign weights in as many ways as they use them
        raise DataError(f"{path}: its weights are not those of its settings ({excerpt(err)}). {DAMAGED}") from err
    if found.shape[:1] != seen.shape[:1]:
        raise DataError(f"{path} acts for {found.shape[:1]} agents of {seen.shape[:1]}. {DAMAGED}")


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of a file and the content of its card. Raises DataError where it holds no policy of this format."""
    arrays = read_npz(path)
    missing = [name for name in (ABOUT, HIGH, LOW, MOMENTS, COUNTS) if name not in arrays]
    if missing:
        raise DataError(f"{path} holds no policy: {missing[0]} is missing. Write one: powerzoo-jax export --format zoo")
    about: dict[str, Any] = parse_json(str(arrays[ABOUT]), f"the card in {path}", DataError, DAMAGED)
    require_form(about, {"format": int}, f"the card in {path}", DataError, DAMAGED)
    if about["format"] != FORMAT:
        raise DataError(
            f"{path} has format {about['format']}, and this version reads {FORMAT}. Use the powerzoo_jax that wrote "
            f"it: {about.get('library_version')}."
        )
    require_form(about, FORM, f"the card in {path}", DataError, DAMAGED)
    return arrays, about


def _require_same_task(path: Path, about: Mapping[str, Any], sim: Sim) -> None:
    """Refuse a Sim that a policy was not trained for. Raises SettingsError naming what differs."""
    now = spec_of(sim)
    if now["task"] != about["task"]:
        raise SettingsError(f"{path} was trained on {about['task']!r} and cannot play {now['task']!r}: load its own.")
    names = now["keywords"].keys() | about["keywords"].keys()
    changed = sorted(k for k in names if now["keywords"].get(k) != about["keywords"].get(k))
    if changed:
        told = (f"{k} = {now['keywords'].get(k)!r} (trained with {about['keywords'].get(k)!r})" for k in changed)
        raise SettingsError(
            f"{path}: keywords of {about['task']!r} differ: {listing(told)}. Leave them out, train on the changed "
            "task, or, to see how far the policy carries, load it without the sim and play that one."
        )
    for name in ("version", "agents", "observation", "action"):
        if now[name] != about[name]:
            raise SettingsError(
                f"{path}: {name} of {about['task']!r} is {now[name]}, and the policy was trained for {about[name]}. "
                "Build the task without `dims`, or train again."
            )


def card_text(about: Mapping[str, Any], size: int) -> str:
    """The card of a policy in Markdown: what was trained, how, and what it earns.

    size:  [B] of its file
    """
    settings = about["settings"]
    count = sum(int(np.prod(shape)) for _, shape in about["weights"])
    series = ", ".join(f"{name} ({digest[:12]})" for name, digest in about["data"].items()) or "made by the task"
    augment = settings.get("augment", "none")
    added = "" if augment == "none" else f", with made days (`augment = {augment}`)"
    rows = {
        "task": f"`{about['task']}`, version {about['version']}",
        "algorithm": f"`{settings['algorithm']}`",
        "networks": f"widths {settings['widths']}, {settings['activation']}, memory {settings.get('memory', 0)}",
        "trained on": f"split {settings['split']}{added}: {series}",
        "seed": about["seed"],
        "steps": f"{about['steps']:,} of the environment",
        "planner seen": about["planner"] or "none: it has learnt from the reward alone",
        "file": f"{count:,} weights in float16, {size / 1e3:.1f} kB",
        "written by": f"powerzoo_jax {about['library_version']}, jax {about['jax']}",
    }
    lines = [f"# {about['task']}", "", f'`powerzoo_jax.load_policy("{about["task"]}")`', "", "| | |", "|-|-|"]
    lines += [f"|{name}|{value}|" for name, value in rows.items()]
    lines += ["", "The figures below are those of this file, not of the float32 weights that it was rounded from.", ""]
    lines += _score_table(about)
    lines += ["", "`SETTINGS.toml` of the command that made it:", "", "```toml", *settings_text(settings), "```"]
    lines += ["", "```", *about["commands"], "```"]
    lines += [f"\n{note}" for note in about["notes"]]
    lines += [
        "",
        f"The first {len(about['first']['returns'])} seeded episodes of split test, as `evaluate` plays them with "
        f"`n_episodes={len(about['first']['returns'])}`; a test plays them again:",
        "",
        *("```json", json.dumps(about["first"], indent=2), "```"),
    ]
    return "\n".join(lines) + "\n"


def settings_text(settings: Mapping[str, Any]) -> list[str]:
    """Lines of a TOML file of resolved settings; numbers, texts and lists are written in JSON as in TOML."""
    return [f"{name} = {json.dumps(value)}" for name, value in settings.items()]


def _score_table(about: Mapping[str, Any]) -> list[str]:
    """Return, gain, ends and mean cost of each channel with its budget, one row a split."""
    channels = list(next(iter(about["scores"].values()))["costs"])
    head = ["split", "episodes", "return", "gain", "rule", "best", "budgets kept", *(f"{c} (budget)" for c in channels)]
    lines = [f"|{'|'.join(head)}|", f"|{'-|' * len(head)}"]
    for split, score in about["scores"].items():
        rule, best = score["ends"] or (None, None)
        budgets = score["budgets"]
        costs = (f"{x:.4g} ({'-' if budgets[c] is None else f'{budgets[c]:.4g}'})" for c, x in score["costs"].items())
        values = ("-" if x is None else f"{x:.4g}" for x in (score["return"], score["gain"], rule, best))
        kept = "yes" if score["feasible"] else "no"
        lines.append(f"|{'|'.join([split, str(score['episodes']), *values, kept, *costs])}|")
    return lines
