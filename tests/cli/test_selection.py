"""Selection on the validation split: which policy is kept, and that a stop in between changes nothing."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cli.commands.evaluate import score_trained
from powerzoo_jax.cli.commands.train import StopRequest, train
from powerzoo_jax.cli.runs import VAL_LOG, Run
from powerzoo_jax.cli.selection import Selection, better_of, excess_of, policies_of_run, stored_selection
from powerzoo_jax.rl.training.config import PPOConfig

CONFIG = PPOConfig(
    task="battery_arbitrage", lanes=4, steps=48, total_steps=4 * 48 * 4, epochs=1, minibatches=1, widths=(8,), lr=3e-2,
    select_every=1,
)  # fmt: skip


def selection(totals: list[float], excess: list[float], update: int) -> Selection:
    policy = {"w": jnp.full((len(totals), 2), float(update))}
    return Selection(
        policy=policy,
        total=jnp.array(totals),
        excess=jnp.array(excess),
        update=jnp.full(len(totals), update, jnp.int32),
    )


def test_budgets_go_before_returns_and_the_older_of_two_alike_stays():
    """Rows: higher return, infeasible after feasible, feasible after infeasible, smaller excess, alike."""
    old = selection([1.0, 1.0, 9.0, 9.0, 5.0], [0.0, 0.0, 0.2, 0.2, 0.0], 1)
    new = selection([2.0, 9.0, 1.0, 1.0, 5.0], [0.0, 0.1, 0.0, 0.1, 0.0], 2)
    best = better_of(old, new)
    assert best.update.tolist() == [2, 1, 2, 2, 1]
    assert best.total.tolist() == [2.0, 1.0, 1.0, 1.0, 5.0]
    assert best.policy["w"][:, 0].tolist() == [2.0, 1.0, 2.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("costs", "expected"), [({"a": 1.0, "b": 9.0}, 0.0), ({"a": 3.0, "b": 9.0}, 0.5), ({"a": 1.0, "c": 0.01}, 10.0)]
)
def test_the_excess_is_the_largest_share_of_a_budget(costs, expected):
    """Budgets of 2 and of 0, which 0.001 stands for as in training; b has none."""
    budgets = {"a": 2.0, "b": None, "c": 0.0}
    record = SimpleNamespace(
        feasible=expected == 0,
        cost_thresholds={name: budgets[name] for name in costs},
        mean_costs_by_constraint=costs,
    )
    assert excess_of(record) == pytest.approx(expected)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four updates, each of which is judged."""
    run = Run(tmp_path_factory.mktemp("whole"), CONFIG, seeds=2)
    run.write()
    train(run, run.make(), stop=StopRequest())
    return run


@pytest.mark.long
def test_what_is_kept_plays_as_well_as_the_record_says_and_no_worse_than_the_last(whole):
    best = stored_selection(whole, whole.make())[0]
    records = score_trained(whole.make("val"), policies_of_run(whole))
    np.testing.assert_allclose(best.total, [r.mean_reward for r in records], rtol=1e-6)
    last = dataclasses.replace(whole, config=dataclasses.replace(CONFIG, select_every=0))
    ends = score_trained(whole.make("val"), policies_of_run(last))
    for kept, end in zip(records, ends, strict=True):
        assert (excess_of(kept), -kept.mean_reward) <= (excess_of(end), -end.mean_reward)


@pytest.mark.long
def test_a_run_that_was_stopped_keeps_the_same_policies(whole, tmp_path):
    run = Run(tmp_path / "parts", CONFIG, seeds=2)
    run.write()
    stop = StopRequest()
    stop.raised = True  # after the first update
    assert train(run, run.make(), stop=stop).done == 1
    train(run, run.make(), resume=True, stop=StopRequest())
    parts, once = (stored_selection(r, r.make())[0] for r in (run, whole))
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(once), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (run.folder / VAL_LOG).read_text() == (whole.folder / VAL_LOG).read_text()


@pytest.mark.long
def test_the_returns_on_val_are_written_beside_the_steps(whole):
    """Four looks at two seeds; the best of them is what the selection holds, which keeps every budget."""
    header, *rows = (whole.folder / VAL_LOG).read_text().splitlines()
    columns = dict(zip(header.split("\t"), np.array([row.split("\t") for row in rows], float).T, strict=True))
    assert columns["update"].tolist() == [1, 2, 3, 4]
    assert columns["env_steps"].tolist() == [2 * 4 * 48 * k for k in (1, 2, 3, 4)]
    returns = np.stack([columns["return.0"], columns["return.1"]], axis=1)
    best = stored_selection(whole, whole.make())[0]
    assert returns[np.asarray(best.update) - 1, [0, 1]] == pytest.approx(np.asarray(best.total), rel=1e-4)
