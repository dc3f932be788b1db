"""Every hostile input gets one clear error or the right result, at a cost that grows with its size and not faster."""

from __future__ import annotations

import pytest

from tools import hostile
from tools.hostile import FOREIGN, INPUTS, READ, REFUSED, Input, try_out

SMALL = 2000
TIMES = 8  # as many items in the larger of two sizes
# A linear reader takes 8 times as long, a quadratic one 64 times; CPU seconds, and a part for what does not grow.
MOST_TIMES, FIXED_S = 30, 0.1
TRIES = 3  # a busy machine may delay one, a reader that is not linear all of them


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("item", INPUTS, ids=lambda item: f"{item.reader}: {item.name}")
def test_a_hostile_input_is_refused_or_read_rightly_in_linear_time(item, tmp_path):
    def spent(size: int) -> float:
        found = try_out(item.make(tmp_path, min(size, item.full)), item.right)
        assert found.what in (READ, REFUSED), found.message
        assert found.what == REFUSED or item.right is not None
        assert len(found.message) < 6000
        return found.seconds

    most = MOST_TIMES * spent(SMALL) + FIXED_S
    assert any(spent(TIMES * SMALL) < most for _ in range(TRIES))


def test_a_foreign_traceback_and_a_wrong_result_are_counted(monkeypatch, tmp_path, capsys):
    def broken(folder, n):
        return lambda: {}["missing"]

    bad = (
        Input("none", "foreign", 1, broken, lambda _: True),
        Input("none", "wrong", 1, lambda folder, n: lambda: 3, lambda x: x == 4),
        Input("none", "taken", 1, lambda folder, n: lambda: 3),
    )
    monkeypatch.setattr(hostile, "INPUTS", bad)
    assert hostile.main(["--out", str(tmp_path / "rows.tsv")]) == 1
    text = (tmp_path / "rows.tsv").read_text()
    assert text == capsys.readouterr().out.splitlines()[-1].join(["# ", "\n"]) + text.partition("\n")[2]
    assert "3 inputs: 0 read, 0 clear error, 1 foreign traceback, 2 wrong result, 0 too slow" in text
    assert f"{FOREIGN}\tKeyError: 'missing'" in text
