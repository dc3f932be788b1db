"""Texts of public objects and of errors: six and fifteen lines at most, so that a terminal stays readable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax import cases, data, devices, powerflow
from powerzoo_jax.base.errors import CaseError, numbered
from powerzoo_jax.cli import main

MOST_LINES = 6

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def objects() -> dict[str, object]:
    """One object of every kind that a first session has in hand, of a grid large enough to fill screens."""
    case, feeder = pz.load_case("case300"), cases.load_feeder("ieee123")
    study = pz.run_power_flow("case118")
    plain = pz.load_case("case69")
    prepared, s = powerflow.prepare_feeder(plain), powerflow.nominal_injection(plain)
    flow = powerflow.solve_feeder(prepared, jnp.asarray(s.real, "float32"), jnp.asarray(s.imag, "float32"))
    sim = pz.make("dso")
    state, _ = sim.init(jax.random.key(0))
    step = jax.eval_shape(sim.step, state, jnp.zeros((sim.env.dims.agent, sim.env.dims.act)))
    bank = data.build_bank("simbench_2016", "mv_semiurb", "de_smard_2018", "price_eur_per_mwh", 30, "train", 48)
    fleet = devices.storage_params(40, "float32", capacity_mwh=1.0, power_mw=np.linspace(0.1, 1, 40))
    return {
        **{f"case {name}": getattr(case, name) for name in ("bus", "branch", "unit", "load")},
        **{"case": case, "feeder": feeder, "line": feeder.line, "study": study, "table": study.tables["bus"]},
        **{"series": data.load_dataset("fr_2017_2019"), "bank": bank, "prepared": prepared, "flow": flow},
        **{"sim": sim, "spec": sim.spec, "params": sim.params, "state": state, "step": step, "info": step.info},
        **{"fleet": fleet, "units": sim.params.starts},
    }


def test_the_text_of_a_public_object_has_at_most_six_lines(objects):
    long = {name: repr(x).count("\n") + 1 for name, x in objects.items() if repr(x).count("\n") >= MOST_LINES}
    assert not long


def test_short_arrays_are_shown_by_their_numbers_and_long_ones_by_shape(objects):
    assert "capacity_mwh=float32[40]" in repr(objects["fleet"])
    two = repr(devices.storage_params(2, "float32", capacity_mwh=[0.5, 0.25], power_mw=0.2))
    assert "capacity_mwh=[0.5, 0.25]" in two and two.startswith("StorageParams(")
    assert "float32[2]" in repr(jax.eval_shape(lambda: devices.storage_params(2, "float32")))


def test_an_error_of_a_broken_grid_is_cut_and_check_lists_all(tmp_path, capsys):
    lines = [f"unknown_{i}(mpc);" for i in range(40)]
    path = tmp_path / "broken.m"
    path.write_text("\n".join(["function mpc = broken", "mpc.version = '2';", "mpc.baseMVA = 1;", *lines]))
    with pytest.raises(CaseError) as caught:
        pz.load_case(path)
    text = str(caught.value).splitlines()
    assert len(text) <= 15 and text[-1].endswith("more; `powerzoo-jax check` lists all.")
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.count("[error]") == int(text[0].split()[2])


def test_a_list_of_findings_is_cut_with_a_count():
    text = numbered("overrides", [f"finding {i}" for i in range(30)]).splitlines()
    assert len(text) == 14 and text[-1] == "... and 18 more."
