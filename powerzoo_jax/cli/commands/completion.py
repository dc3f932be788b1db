"""`completion`: script that completes commands, options and task names in a shell."""

from __future__ import annotations

import argparse

from powerzoo_jax.base.errors import missing_extra
from powerzoo_jax.cli.main import build_parser


def run(options: argparse.Namespace) -> int:
    """Print the script. Raises ImportError, naming the extra, without shtab, which writes it."""
    try:
        import shtab
    except ImportError as err:
        raise ImportError(missing_extra("The script", "shtab", "completion")) from err
    print(shtab.complete(build_parser(), shell=options.shell))
    return 0
