"""Pages of the documentation site with an episode of every public task under its rule: `python -m tools.episodes`.

The first episode of the test split, as `powerzoo-jax view TASK` shows it; `tools.kept` keeps the pages under
build/episodes.
"""

from __future__ import annotations

from powerzoo.tasks import PUBLIC_TASKS

from tools.kept import digest_with, kept

TASKS = tuple(sorted({*PUBLIC_TASKS, "joint_trans_dist"}))
POLICY = "rule"


def episode(task: str) -> str:
    """Page of a task as HTML text that stands for itself."""
    return kept("episodes", task, "html", digest_with(task), lambda: _played(task))


def _played(task: str) -> str:
    from powerzoo_jax import make
    from powerzoo_jax.cli.traces import chosen_starts, trace_policies
    from powerzoo_jax.plot import episode_html
    from powerzoo_jax.tasks.score import SEED

    sim = make(task, split="test")
    traces = trace_policies(sim, (POLICY,), {}, chosen_starts(sim, None, SEED), SEED)
    return episode_html(traces[POLICY])


if __name__ == "__main__":
    for name in TASKS:
        print(f"{name}: {len(episode(name)) / 1e3:.0f} kB", flush=True)
