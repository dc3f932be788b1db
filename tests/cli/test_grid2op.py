"""`grid2op`: a folder of a world described and played, as text and as a document."""

from __future__ import annotations

import json

import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.families.operation.grid2op.example import EPISODES, LIMITS_A, write_world
from tests.references.grid2op import Replay, nothing
from tests.references.grid2op_world import World


@pytest.mark.long
def test_a_world_is_described_and_its_survival_is_that_of_the_reference(tmp_path, capsys):
    tight = [0.5 * limit for limit in LIMITS_A]
    folder = write_world(tmp_path / "five", limits=tight)
    config = (folder / "config.py").read_text()
    assert '"opponent_class": RandomLineOpponent' in config  # draws by keys, unlike the reference
    (folder / "config.py").write_text(config.replace('"opponent_class": RandomLineOpponent', '"opponent_class": None'))
    (folder / "LICENSE").write_text("Creative Commons BY 4.0\n")
    assert main(["grid2op", str(folder), "--steps", "20", "--json"]) == 0
    text = capsys.readouterr()
    for part in ("5 substations, 7 lines", "2 episodes of 39 to 39 steps", "LICENSE: Creative Commons"):
        assert part in text.err
    lived = 0
    for name in EPISODES:
        replay = Replay(World(folder))
        replay.reset(name)
        while replay.steps < 20 and not replay.step(nothing(replay.grid))[1]:
            pass
        lived += replay.steps
    document = json.loads(text.out)
    assert lived < 40 and document["policies"]["no_control"]["steps"] == f"{lived} of 40"
    assert list(document["policies"]) == ["no_control", "recovery"]
    assert document["notes"] and document["world"] == "five"


def test_a_folder_that_is_none_is_refused(tmp_path, capsys):
    assert main(["grid2op", str(tmp_path / "none")]) == 2
    assert "There is no folder" in capsys.readouterr().err
