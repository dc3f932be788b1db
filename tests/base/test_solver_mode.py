"""Solver modes: which form of a solver a program is lowered to."""

import jax
import jax.numpy as jnp
import pytest

from powerzoo_jax.base.solver_mode import MODES, auto_is, by_mode, check_mode

FORMS = {"adaptive": jnp.sin, "fixed": jnp.cos}
OTHER_PLATFORMS = ("cuda", "tpu", "rocm")


def lowered(mode: str, platform: str) -> str:
    traced = jax.jit(lambda x: by_mode(mode, *FORMS.values(), x)).trace(jnp.ones(3))
    return traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("platform", ["cpu", *OTHER_PLATFORMS])
def test_auto_lowers_one_form_for_each_platform(platform):
    text = lowered("auto", platform)
    assert ("stablehlo.sine" in text, "stablehlo.cosine" in text) == (platform == "cpu", platform != "cpu")


@pytest.mark.parametrize("mode", FORMS)
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_named_mode_holds_on_every_platform(mode, platform):
    text = lowered(mode, platform)
    assert ("stablehlo.sine" in text, "stablehlo.cosine" in text) == (mode == "adaptive", mode == "fixed")


def test_unknown_mode_names_the_nearest():
    with pytest.raises(ValueError, match=r"'fixt'.*fixed"):
        check_mode("fixt")
    assert [check_mode(mode) for mode in MODES] == list(MODES)


def test_a_caller_may_say_what_auto_is_for_the_programs_it_traces():
    with auto_is("fixed"):
        text = lowered("auto", "cpu")
        assert "stablehlo.cosine" in text and "stablehlo.sine" not in text
        assert "stablehlo.sine" in lowered("adaptive", "cpu")
        with auto_is("auto"):
            assert "stablehlo.sine" in lowered("auto", "cpu")
    assert "stablehlo.sine" in lowered("auto", "cpu")
    with pytest.raises(ValueError, match=r"'fixt'.*fixed"), auto_is("fixt"):
        raise AssertionError("a mode that there is not was taken")
