"""A view that acts for one agent refuses a task of several, by name and with a remedy; it moved the first alone."""

from __future__ import annotations

import pytest
from powerzoo_compat import gymnasium_view, safety_view, vector_view

DOORS = {
    "gymnasium": gymnasium_view.make_env,
    "safe": safety_view.make_safe_env,
    "batch": lambda name: vector_view.make_vec_env(name, 2),
    "safe batch": lambda name: safety_view.make_safe_vec_env(name, 2),
}


@pytest.mark.parametrize("task", ["marl_der_arbitrage", "gencos_bidding", "joint_trans_dist"])
@pytest.mark.parametrize("door", DOORS)
def test_a_door_for_one_agent_refuses_several(door, task):
    with pytest.raises(ValueError, match=rf"{task} has \d+ agents, and this view acts for one.*pettingzoo"):
        DOORS[door](task)
