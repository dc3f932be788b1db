"""Arguments of the command line, and how its errors read."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from powerzoo_jax.base.errors import PowerZooError, printable
from powerzoo_jax.base.files.results import require_replaceable
from powerzoo_jax.base.ranges import Count, NotNegative, Positive, Range, Seeds, Whole, fitted
from powerzoo_jax.cli.table import STDOUT, document_alone, set_quiet

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
USER_ERRORS = (PowerZooError, ValueError, TypeError, KeyError, OSError, ImportError)
DEBUG = "POWERZOO_DEBUG"
STUDY_ROWS, BEST = 40, 10
JSON = "print one JSON document on standard output and nothing else there"
FORMATS = ("stablehlo", "onnx", "zoo")  # of an exported policy
SHELLS = ("bash", "zsh", "tcsh")
ONE_FILE = ("view:run", "plot:run", "dataset:run", "export:run")  # commands whose --out is no folder
OPTIONS = {
    **dict.fromkeys(("episodes", "episode", "processes", "steps"), Count),
    "seeds": Seeds,
    **dict.fromkeys(("seed", "process"), Whole),
    "lanes": Annotated[int, Range(1, 2**24)],
    "every": NotNegative,
    "seconds": Positive,
}  # ranges of the numbers that commands take
GRID = "a .m file, a pandapower .json file, a .dss script, or the name of a shipped grid"
LEARNERS = "ppo, ippo, mappo, ppo_gru, ppo_lagrangian, ippo_lagrangian, sac, apg, apg_lagrangian, es, clone, dagger"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 fine, 1 checks failed, 2 bad input, 130 interrupted."""
    options = build_parser().parse_args(argv)
    module, function = options.run.split(":")
    set_quiet(options.quiet)
    try:
        from powerzoo_jax.base.host import use_compilation_cache
        from powerzoo_jax.cli.own import load_modules

        use_compilation_cache()
        check_options(options)
        with spoken_warnings(), document_alone() if is_json(options) else contextlib.nullcontext():
            options.module = load_modules(getattr(options, "module", ()))
            return int(getattr(importlib.import_module(module), function)(options))
    except KeyboardInterrupt:
        print("\npowerzoo-jax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of a pipe has closed it (`| head`): not an error, and nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except USER_ERRORS as err:
        if os.environ.get(DEBUG):
            raise
        print(f"powerzoo-jax: {explain_error(err)}", file=sys.stderr)
        return BAD_INPUT


@contextlib.contextmanager
def spoken_warnings() -> Iterator[None]:
    """Warnings to users as a sentence, without the line of our source that gave them; all others as they are."""
    before = warnings.formatwarning

    def spoken(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        own = category is UserWarning
        return f"powerzoo-jax: {printable(str(message))}\n" if own else before(message, category, *where, **more)

    warnings.formatwarning = spoken  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def is_json(options: argparse.Namespace) -> bool:
    """True where standard output is for a JSON document; `evaluate --json FILE` writes it elsewhere."""
    return getattr(options, "json", False) in (True, STDOUT)


def check_options(options: argparse.Namespace) -> None:
    """Check of the numbers of a command line by their declared ranges, and of the places of results.

    Raises SettingsError naming the option, WriteError naming the place.
    """
    for name, kind in OPTIONS.items():
        if getattr(options, name, None) is not None:
            setattr(options, name, fitted(f"--{name}", getattr(options, name), kind))
    for name in ("json", "trace", "latex", "page", *(("out",) if options.run.endswith(ONE_FILE) else ())):
        path = getattr(options, name, None)
        if isinstance(path, Path) and path != STDOUT:
            require_replaceable(path)


def explain_error(err: BaseException) -> str:
    """Message of an error, without its type; a KeyError would show quotes around its text."""
    text = str(err.args[0]) if isinstance(err, KeyError) and err.args else str(err)
    # a sentence was written for the user; a bare key or type is a bug, and worth a look at where it came from
    own = isinstance(err, PowerZooError | ValueError | OSError) or " " in text
    return printable(text if own and text else f"{text or type(err).__name__} ({DEBUG}=1 shows where)")


def policy_name(text: str) -> str:
    """Name of a policy; what tables call best is played by the oracle, and a row of its return bears that name."""
    return "oracle" if text == "best" else text


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    from powerzoo_jax import __version__

    parser = argparse.ArgumentParser(prog="powerzoo-jax", description="Power-grid simulation for learning, in JAX.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_looking(commands)
    _add_train(commands)
    _add_evaluate(commands)
    _add_measuring(commands)
    about = "Print a script that completes commands in a shell."
    shells = _command(commands, "completion", "completion:run", about, json=False)
    shells.add_argument("shell", choices=SHELLS, help="your shell")
    return parser


def _command(
    commands: argparse._SubParsersAction, name: str, run: str, text: str, *, json: bool = True
) -> argparse.ArgumentParser:
    """Parser of a command with what all of them take; json: False where it prints no results, or says it itself."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(run=f"powerzoo_jax.cli.commands.{run}")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no sign of life, even on a terminal")
    if json:
        parser.add_argument("--json", action="store_true", help=JSON)
    return parser


def _own(parser: argparse.ArgumentParser, *, keywords: bool = True) -> None:
    parser.add_argument(
        "--module", action="append", default=[], metavar="FILE", help="Python file that registers own tasks; repeatable"
    )
    if keywords:
        parser.add_argument(
            "--keyword",
            dest="keywords",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="keyword of `make`, such as case=my_grid.m; repeatable",
        )


def _add_looking(commands: argparse._SubParsersAction) -> None:
    _command(commands, "list", "show:run_list", "List tasks, cases and data sets.")
    show = _command(commands, "show", "show:run_show", "Describe a task: spec, sizes, keywords, observation.")
    show.add_argument("task", help="task id, see `powerzoo-jax list`")
    _own(show)
    show.add_argument("--split", help="train, val, test or a named split (default: the task's)")
    check = _command(commands, "check", "grid_file:run_check", "Check a grid file and list all its problems at once.")
    check.add_argument("case", help=GRID)
    flow = _command(commands, "pf", "grid_file:run_pf", "Print the power flow of a grid file by bus and branch.")
    flow.add_argument("case", help=GRID)
    flow.add_argument("--opf", action="store_true", help="dispatch at least cost within all limits (AC)")
    flow.add_argument("--n-1", action="store_true", help="repeat it without each branch")
    flow.add_argument(
        "--actions",
        action="store_true",
        help=f"repeat it after each branch opened or closed and each split of a substation; print the {BEST} best",
    )
    flow.add_argument("--all", action="store_true", help=f"print every row, not {STUDY_ROWS} of each table")
    about = "Describe an environment folder of Grid2Op, and play it by doing nothing and by recovery."
    world = _command(commands, "grid2op", "grid2op:run", about)
    world.add_argument("folder", type=Path, help="folder of the environment, with grid.json and config.py")
    world.add_argument("--difficulty", help="key of difficulty_levels.json (default: competition, else the largest)")
    world.add_argument("--split", help="train, val or test: eight, one and one of ten episodes (default: all)")
    world.add_argument("--episodes", type=int, default=20, help="number of episodes, the first (default: 20)")
    world.add_argument("--steps", type=int, default=2000, help="of an episode, at most (default: 2000)")


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = _command(commands, "train", "train:run", "Train a policy and score it on the test split.")
    _add_run(train, "results/TASK_ALGORITHM")
    sweep = _command(commands, "sweep", "sweep:run", "Train at many settings and seeds in one program; print a table.")
    _add_run(sweep, "results/TASK_ALGORITHM_sweep")
    sweep.add_argument(
        "--over", action="append", required=True, metavar="KEY=V1,V2,...", help="values of a float setting; repeatable"
    )
    sweep.add_argument("--split", default="val", help="split that the policies are scored on (default: val)")
    board = _command(
        commands, "leaderboard", "leaderboard:run", "Train and score on many tasks; write a Markdown page."
    )
    board.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK[:ALGORITHM]",
        help="what to train; --all for every task with references; TASK:causal scores the causal planner, which is not",
    )
    _own(board, keywords=False)
    board.add_argument("--all", action="store_true", help="every task with references, which takes hours")
    board.add_argument(
        "--refresh", action="store_true", help="write the page's rows beside today's references; nothing is played"
    )
    board.add_argument("--algorithm", help=f"learner of all of them: {LEARNERS} (default: that of the settings)")
    board.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="[ALGORITHM.]KEY=VALUE",
        help="replace a setting everywhere, or of one learner; repeatable",
    )
    board.add_argument("--seeds", type=int, default=5, help="independent runs of a task, trained side by side")
    board.add_argument("--every", type=float, default=30.0, metavar="S", help="seconds between checkpoints")
    board.add_argument("--runs", type=Path, default=Path("results/leaderboard"), help="folder of the runs")
    board.add_argument("--page", type=Path, default=Path("docs/leaderboard.md"), help="page to write")
    board.add_argument(
        "--split",
        action="append",
        metavar="NAME",
        help="further split to score on; repeatable (default: every named split of the task with shipped references)",
    )
    board.add_argument("--latex", type=Path, metavar="FILE", help="write the page as a LaTeX table (booktabs)")


def _add_run(command: argparse.ArgumentParser, folder: str) -> None:
    """Arguments of training, at one point or at many."""
    command.add_argument("what", metavar="CONFIG|TASK", help="a TOML file of settings, or a task id for the defaults")
    _own(command)
    command.add_argument("--algorithm", help=f"learner: {LEARNERS} (default: that of the settings, else ppo)")
    command.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="replace a setting; repeatable"
    )
    command.add_argument("--seeds", type=int, default=1, help="independent runs, trained side by side")
    command.add_argument("--seed", type=int, default=0, help="first seed")
    command.add_argument("--out", type=Path, help=f"folder of the run (default: {folder})")
    command.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    command.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    command.add_argument("--every", type=float, default=30.0, metavar="S", help="seconds between checkpoints")
    command.add_argument(
        "--log", action="append", default=[], metavar="NAME", help="tensorboard or wandb, beside the TSV; repeatable"
    )
    command.add_argument("--cluster", action="store_true", help="one process of many, as the cluster's scheduler says")
    command.add_argument("--coordinator", metavar="HOST:PORT", help="one process of many: where the first one listens")
    command.add_argument("--processes", type=int, help="with --coordinator: how many there are")
    command.add_argument("--process", type=int, help="with --coordinator: which one this is, from 0")


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    evaluate = _command(commands, "evaluate", "evaluate:run", "Score a baseline or a trained run.", json=False)
    evaluate.add_argument("what", metavar="TASK|RUN", help="a task id, or the folder of a trained run")
    _own(evaluate)
    evaluate.add_argument(
        "--policy",
        type=policy_name,
        metavar="NAME",
        help="random, no_control, rule, oracle (or best) or another of the task, or zoo, the trained one that is "
        "shipped; beside a run if RUN is given (default: all but zoo); a run's own algorithm shows the run alone",
    )
    evaluate.add_argument("--split", default="test", help="split to play (default: test)")
    evaluate.add_argument("--episodes", type=int, help="number of seeded episodes (default: those of the references)")
    evaluate.add_argument("--seed", type=int, default=42, help="first seed of --episodes")
    evaluate.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help=f"{JSON}, the full records; with FILE, write them there and print the table",
    )
    evaluate.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write every step as compressed arrays (.npz) with names and units: of the episodes of --episodes, else "
        "of the first; of a run's first seed",
    )
    view = _command(commands, "view", "view:run", "Write an episode as a page for a browser, or draw a grid.")
    view.add_argument(
        "what", metavar="TASK|RUN|FILE|GRID", help=f"a task id, the folder of a trained run, a file of traces; {GRID}"
    )
    _own(view)
    view.add_argument(
        "--policy",
        type=policy_name,
        action="append",
        metavar="NAME",
        help="random, no_control, rule, oracle (or best) or another of the task, or zoo; repeatable, shown side by "
        "side (default: rule and oracle, beside a run's own)",
    )
    view.add_argument("--split", default="test", help="split of the episode (default: test)")
    view.add_argument("--episode", type=int, default=1, help="number of the episode in its split (default: 1)")
    view.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="page or picture to write (default: results/TASK_episode.html, results/GRID.svg)",
    )
    plot = _command(commands, "plot", "plot:run", "Draw learning curves of runs, or the gains of a leaderboard.")
    plot.add_argument(
        "what",
        nargs="+",
        type=Path,
        metavar="RUN|BOARD",
        help="folders of runs, or the .json of a leaderboard",
    )
    _own(plot, keywords=False)
    plot.add_argument("--split", help="with BOARD: gains on a named split (default: test)")
    plot.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture; its ending, such as .svg, .pdf or .png, is the format (default: results/curves.svg)",
    )
    plot.add_argument("--title", default="", help="title of the picture")
    data = _command(commands, "dataset", "dataset:run", "Record episodes of a policy as data for offline learning.")
    data.add_argument("what", metavar="TASK|RUN", help="a task id, or the folder of a trained run, which then acts")
    _own(data)
    data.add_argument(
        "--policy",
        type=policy_name,
        metavar="NAME|RUN",
        help="random, rule, oracle (or best) or another of the task, zoo, or a run (default: rule)",
    )
    data.add_argument("--split", default="train", help="split to play (default: train)")
    data.add_argument("--episodes", type=int, help="number of seeded episodes (default: every start of the split once)")
    data.add_argument("--seed", type=int, default=42, help="first seed (default: 42)")
    data.add_argument("--out", type=Path, metavar="FILE", help="arrays to write (default: results/TASK_POLICY.npz)")
    data.add_argument(
        "--minari",
        metavar="ID",
        help="write them into the local store of Minari instead, as powerzoo/TASK/POLICY-v0 (extra `minari`)",
    )
    about = "Write a trained policy as a program that needs JAX or an ONNX runtime alone, or as a file of the zoo."
    export = _command(commands, "export", "export:run", about)
    export.add_argument("run_folder", metavar="RUN", type=Path, help="folder of a trained run")
    _own(export, keywords=False)
    export.add_argument("--row", type=int, default=0, help="which seed of the run, from 0 (default: 0, the first)")
    export.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="stablehlo; onnx (extra `onnx`); zoo: float16 weights for `load_policy`, scored on val and test",
    )
    export.add_argument("--note", action="append", default=[], help="with zoo: a sentence for its card; repeatable")
    export.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: RUN/policy.FORMAT, or RUN/TASK.npz)"
    )
    reference = _command(
        commands, "reference", "evaluate:run_reference", "Print the reference returns of a task as JSON."
    )
    reference.add_argument("task", help="task id")
    _own(reference)
    reference.add_argument("--split", default="test", help="split (default: test)")
    reference.add_argument("--compute", action="store_true", help="compute them instead of reading the shipped record")


def _add_measuring(commands: argparse._SubParsersAction) -> None:
    bench = _command(commands, "bench", "bench:run", "Measure this machine: power flows and environment steps.")
    bench.add_argument("--task", default="battery_arbitrage", help="task to step")
    bench.add_argument("--lanes", type=int, default=1024, help="parallel environments")
    bench.add_argument("--seconds", type=float, default=3.0, help="time for each measurement")
    _command(commands, "selftest", "selftest:run", "Check this installation: names, views, data, physics, tasks.")
    demo = _command(commands, "demo", "demo:run", "Train on battery_arbitrage, compare six policies, plot a day.")
    demo.add_argument("--out", type=Path, default=Path("results"), help="folder of results (default: results)")
    demo.add_argument("--quick", action="store_true", help="a few updates only: shows that everything runs")
