"""Counts of a source tree, on files small enough to count by hand."""

from pathlib import Path

from tools.counts import Helpers, Lines, counts, helpers_of, lines_of

MODULE = '''"""Docstring of two
lines."""

import math  # a reason
# a whole line


def area(r):  # noqa: E501
    """Docstring."""
    return math.pi * _squared(
        r
    )


def _squared(r):
    """Docstring."""
    s = """a string
    that is code"""
    return r * r


def _alone(r):
    return _alone_too(r) + _alone_too(r)


def _alone_too(r):
    a = r
    b = a

    c = b
    return c


area_of_circle = _alone
'''


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings() -> None:
    assert lines_of(MODULE) == Lines(all=len(MODULE.splitlines()), code=17, comments=2)


def test_a_helper_has_one_caller_where_its_file_names_it_once() -> None:
    assert helpers_of(MODULE) == Helpers(private=3, one_caller=2, short=2)


def test_a_tree_is_counted_by_folder(tmp_path: Path) -> None:
    for folder in ("powerzoo_jax/deep", "compat", "tests", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "powerzoo_jax/deep/circle.py").write_text(MODULE, encoding="utf-8")
    found = counts(tmp_path)
    assert found["files"] == "1"
    assert found["code of powerzoo_jax"] == "17"
    assert found["code of compat"] == "0"
    assert found["one caller"] == "67 % of 3"
