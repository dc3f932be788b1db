"""Forms of plain content, as JSON gives it: what a file of somebody else must look like before anything reads it."""

from __future__ import annotations

from typing import Any

from powerzoo_jax.base.errors import PowerZooError, excerpt, listing

MOST = 2**53  # size of a whole number: beyond it JSON of other programs is no longer exact
OPTIONAL = "?"


def misfit(content: Any, form: Any, at: str = "") -> str:
    """First place where content is not of a form, as a sentence; "" where it is.

    form:  str, bool, int, float (whole numbers too), None, or object for anything; [form] for a list; {str: form} for
           names of any kind; {"a": form, "b?": form} for what must stand there, and what may; (form, ...) for one of
           several. Names that a form does not tell are passed over.
    """
    if isinstance(form, tuple):
        several = [misfit(content, one, at) for one in form]
        return "" if "" in several else several[0]
    if isinstance(form, list):
        if not isinstance(content, list):
            return _other(content, "a list", at)
        return next((wrong for i, x in enumerate(content) if (wrong := misfit(x, form[0], f"{at}[{i}]"))), "")
    if isinstance(form, dict):
        return _misfit_names(content, form, at)
    return "" if _is(content, form) else _other(content, NAMES[form], at)


NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a number", None: "null"}


def _misfit_names(content: Any, form: dict[Any, Any], at: str) -> str:
    if not isinstance(content, dict):
        return _other(content, "a table of names", at)
    dot = f"{at}." if at else ""
    if str in form:
        return next((wrong for k, x in content.items() if (wrong := misfit(x, form[str], f"{dot}{excerpt(k)}"))), "")
    lacking = [name for name in form if not name.endswith(OPTIONAL) and name not in content]
    if lacking:
        return f"{at or 'it'} lacks {listing(map(repr, lacking))}"
    there = ((name.removesuffix(OPTIONAL), one) for name, one in form.items())
    return next((wrong for k, one in there if k in content and (wrong := misfit(content[k], one, f"{dot}{k}"))), "")


def _is(content: Any, form: Any) -> bool:
    if form is object or form is None:
        return form is object or content is None
    if form in (int, float) and isinstance(content, int):
        return not isinstance(content, bool) and abs(content) <= MOST
    return isinstance(content, form)


def _other(content: Any, wanted: str, at: str) -> str:
    return f"{at or 'it'} is {excerpt(repr(content), 60)}, not {wanted}"


def require_form(content: Any, form: Any, what: str, error: type[PowerZooError], remedy: str) -> None:
    """Raise `error` with the first place where content is not of a form, see `misfit`.

    what:  subject of the message
    """
    if wrong := misfit(content, form):
        raise error(f"{what} is not what it should be: {wrong}. {remedy}")
