"""Guard against a name clash: another distribution of the name `powerzoo` would mix its files with ours."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

RIVAL = "powerzoo"


def refuse_name_clash() -> None:
    """Raise ImportError when a distribution called `powerzoo` is installed beside powerzoo-jax."""
    try:
        found = version(RIVAL)
    except PackageNotFoundError:
        return
    raise ImportError(
        f"the distribution {RIVAL!r} {found} is installed beside 'powerzoo-jax'; both provide the package 'powerzoo' "
        "and their files have mixed. Run `pip uninstall powerzoo`, then `pip install --force-reinstall powerzoo-jax`."
    )
