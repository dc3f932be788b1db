"""A network without load: a series has nothing to be divided by, so shares would be 0 / 0 in every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import load_case, to_matpower


@pytest.mark.parametrize("task", ["gencos_bidding", "marl_opf", "marl_uc", "comparison_tso_centralized"])
def test_a_network_without_load_is_refused(task, tmp_path):
    case = load_case("pz_case5")
    nothing = np.zeros(len(case.load))
    path = tmp_path / "idle.m"
    to_matpower(replace(case, load=replace(case.load, p_mw=nothing, q_mvar=nothing)), path)
    with pytest.raises(CaseError, match=r"idle has a load of 0 MW.*Give it loads"):
        pz.make(task, case=str(path))
