"""Network cases on the host: tables, readers, rules and the shipped library."""

from powerzoo_jax.cases.case import Case as Case
from powerzoo_jax.cases.commitment import CommitmentTable as CommitmentTable
from powerzoo_jax.cases.commitment import commitment_table as commitment_table
from powerzoo_jax.cases.library import list_cases as list_cases
from powerzoo_jax.cases.library import load_case as load_case
from powerzoo_jax.cases.readers.files import read_grid as read_grid
from powerzoo_jax.cases.readers.files import scan_grid as scan_grid
from powerzoo_jax.cases.readers.matpower import read_matpower as read_matpower
from powerzoo_jax.cases.readers.matpower import scan_matpower as scan_matpower
from powerzoo_jax.cases.readers.matpower_exchange import from_matpower as from_matpower
from powerzoo_jax.cases.readers.matpower_exchange import to_matpower as to_matpower
from powerzoo_jax.cases.readers.opendss import read_opendss as read_opendss
from powerzoo_jax.cases.readers.pandapower import convert_pandapower as convert_pandapower
from powerzoo_jax.cases.readers.pandapower import from_pandapower as from_pandapower
from powerzoo_jax.cases.readers.pandapower import to_pandapower as to_pandapower
from powerzoo_jax.cases.readers.pypsa import from_pypsa as from_pypsa
from powerzoo_jax.cases.threephase.balanced import to_threephase as to_threephase
from powerzoo_jax.cases.threephase.case import ThreePhaseCase as ThreePhaseCase
from powerzoo_jax.cases.threephase.library import list_feeders as list_feeders
from powerzoo_jax.cases.threephase.library import load_feeder as load_feeder
from powerzoo_jax.cases.threephase.validate import assert_valid_feeder as assert_valid_feeder
from powerzoo_jax.cases.threephase.validate import validate_threephase as validate_threephase
from powerzoo_jax.cases.topology import isolate_unsupplied as isolate_unsupplied
from powerzoo_jax.cases.validate import assert_valid as assert_valid
from powerzoo_jax.cases.validate import validate as validate
