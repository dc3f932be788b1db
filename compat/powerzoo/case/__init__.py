"""Network cases of the PowerZoo API; Case5() and its like load on demand."""

from powerzoo_compat.powerzoo_api.grids.cases import CaseMeta as CaseMeta
from powerzoo_compat.powerzoo_api.grids.cases import case_on_demand
from powerzoo_compat.powerzoo_api.grids.cases import list_cases as list_cases
from powerzoo_compat.powerzoo_api.grids.cases import load_case as load_case

__getattr__ = case_on_demand(__name__)
