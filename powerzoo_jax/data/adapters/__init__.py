"""Readers of official files: one function per source, which returns a `Series`, chosen by name with `read_official`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.adapters.aemo import read_aemo as read_aemo
from powerzoo_jax.data.adapters.aemo import read_aemo_nemweb as read_aemo_nemweb
from powerzoo_jax.data.adapters.ausgrid import read_ausgrid as read_ausgrid
from powerzoo_jax.data.adapters.cluster import read_alibaba as read_alibaba
from powerzoo_jax.data.adapters.cluster import read_azure as read_azure
from powerzoo_jax.data.adapters.cluster import read_google as read_google
from powerzoo_jax.data.adapters.elexon import read_elexon_fuelhh as read_elexon_fuelhh
from powerzoo_jax.data.adapters.elexon import read_elexon_mid as read_elexon_mid
from powerzoo_jax.data.adapters.neso import read_neso as read_neso
from powerzoo_jax.data.adapters.smard import read_smard as read_smard
from powerzoo_jax.data.adapters.table import Report as Report
from powerzoo_jax.data.series import Series

# source -> reader of a local path; options are named in the reader's own signature
ADAPTERS: dict[str, Callable[..., tuple[Series, Report]]] = {
    "neso": read_neso,
    "elexon_fuelhh": read_elexon_fuelhh,
    "elexon_mid": read_elexon_mid,
    "aemo": read_aemo,
    "aemo_nemweb": read_aemo_nemweb,
    "ausgrid": read_ausgrid,
    "smard": read_smard,
    "google": read_google,
    "alibaba": read_alibaba,
    "azure": read_azure,
}


def list_official() -> tuple[str, ...]:
    """Names of the sources of official files."""
    return tuple(sorted(ADAPTERS))


def read_official(source: str, path: str | Path, **options: Any) -> tuple[Series, Report]:
    """Read official files of a source at a local file or folder: (series, report).

    Options are those of the reader, such as fill_minutes, and max_mb [MB], the largest sum of files that it holds in
    memory; None lifts it. Raises ValueError for an unknown source, DataMissing when there is no file, DataError when it
    cannot be used.

    >>> series, report = read_official("neso", "demanddata_2023.csv")  # doctest: +SKIP
    """
    if source not in ADAPTERS:
        raise ValueError(unknown("source of official files", source, ADAPTERS))
    return ADAPTERS[source](path, **options)
