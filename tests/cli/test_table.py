"""Tables, bars and signs of life: drawn on a terminal, plain or absent where another program reads."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.table import ProgressBar, render, set_quiet, working


class Terminal(io.StringIO):
    """Text that is written to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 60 columns that understands colours."""
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "60", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def drawn(stream: io.StringIO) -> str:
    bar = ProgressBar("ppo", 4, stream=stream)
    bar.show(4, "return +1.00 [$]")
    bar.close()
    with working("compiling ppo", stream):
        pass
    return stream.getvalue()


def test_a_bar_and_a_sign_of_life_are_silent_where_no_terminal_is():
    assert drawn(io.StringIO()) == ""


def test_a_bar_shows_share_and_note_and_a_sign_of_life_what_is_done(terminal):
    text = drawn(terminal)
    assert "100%" in text and "return +1.00 [$]" in text and "compiling ppo" in text


def test_a_quiet_command_shows_neither(terminal):
    set_quiet(True)
    try:
        assert drawn(terminal) == ""
    finally:
        set_quiet(False)


def test_columns_of_numbers_are_right_aligned():
    assert render(("name", "x"), [("a", "1.0"), ("b", "-10.0")]).splitlines()[-2:] == ["a       1.0", "b     -10.0"]


@pytest.mark.parametrize(("columns", "is_drawn"), [(4, True), (9, False)])
def test_a_table_is_drawn_on_a_terminal_that_it_fits_into(columns, is_drawn, terminal, monkeypatch):
    """Nine columns of eight characters are wider than 60: wrapped cells would be harder to read than long lines."""
    header, row = [f"col{i} [$]" for i in range(columns)], [f"{i}.5" for i in range(columns)]
    plain = render(header, [row])
    monkeypatch.setattr(sys, "stdout", terminal)
    text = render(header, [row])
    assert ("\x1b[1m" in text) is is_drawn and (text != plain) is is_drawn
    assert all(cell in text for cell in (*header, *row))


def test_a_leaderboard_of_every_task_is_not_begun_unasked(capsys):
    assert main(["leaderboard"]) == 2 and "--all" in capsys.readouterr().err
    assert main(["leaderboard", "dso", "--all"]) == 2 and "one of tasks" in capsys.readouterr().err


def test_a_shell_completes_the_commands(tmp_path, capsys):
    """Bash itself reads the script and offers what begins with `tr`."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    ask = "COMP_WORDS=(powerzoo-jax tr); COMP_CWORD=1; _shtab_powerzoo_jax; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", f"source {script}; {ask}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["train"]


def test_completion_without_its_library_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 2
    assert "powerzoo-jax[completion]" in capsys.readouterr().err
