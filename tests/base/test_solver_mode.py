"""Solver modes: which form of a solver a program is lowered to."""

import jax
import jax.numpy as jnp
import pytest

from powerzoo_jax.base.solver_mode import MODES, auto_is, by_device, by_mode, check_mode, one_form, told

FORMS = {"adaptive": jnp.sin, "fixed": jnp.cos}
OTHER_PLATFORMS = ("cuda", "tpu", "rocm")


def trace(mode: str) -> jax.stages.Traced:
    return jax.jit(lambda x: by_mode(mode, *FORMS.values(), x)).trace(jnp.ones(3))


def lowered(mode: str, platform: str) -> str:
    return trace(mode).lower(lowering_platforms=(platform,)).as_text()


def forms_in(jaxpr: object) -> list[str]:
    return [form for form, name in (("adaptive", " sin "), ("fixed", " cos ")) if name in str(jaxpr)]


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


@pytest.mark.parametrize(("mode", "form"), [("auto", "adaptive"), ("adaptive", "adaptive"), ("fixed", "fixed")])
def test_a_program_of_one_form_traces_that_of_the_default_device(mode, form):
    assert forms_in(trace("auto").jaxpr) == ["adaptive", "fixed"]
    with one_form(mode):
        assert forms_in(trace("auto").jaxpr) == [form]
        assert told("auto") == form and told("fixed") == "fixed"


def test_another_default_device_gets_a_program_of_its_own(monkeypatch):
    traced = []

    @jax.jit
    def program(x):
        with one_form("auto"):
            traced.append(told("auto"))
        return x

    program(jnp.ones(3))
    with jax.default_device("cpu"):
        program(jnp.ones(3))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # as where JAX finds one
    with jax.default_device(jax.devices("cpu")[0]):
        program(jnp.ones(3))
    program.clear_cache()
    program(jnp.ones(3))
    assert traced == ["adaptive", "adaptive", "adaptive", "fixed"]


def test_the_caller_of_a_program_has_the_first_word_on_its_form():
    for said, forms in (("fixed", ["fixed"]), ("adaptive", ["adaptive"]), ("auto", ["adaptive", "fixed"])):
        with auto_is(said), one_form("auto"):
            assert forms_in(trace("auto").jaxpr) == forms


def test_two_ways_to_the_same_numbers_are_chosen_by_the_device():
    def ways() -> list[str]:
        return forms_in(jax.make_jaxpr(lambda x: by_device(*FORMS.values(), x))(jnp.ones(3)))

    assert ways() == ["adaptive", "fixed"]
    with one_form("auto"):
        assert ways() == ["adaptive"]
    with auto_is("fixed"):  # a form is no device: a CPU may take it too
        assert ways() == ["adaptive", "fixed"]
