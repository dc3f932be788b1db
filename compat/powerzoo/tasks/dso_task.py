"""The network operator's task of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.tasks.dso import DSO_FEEDER_BUS_MAP as DSO_FEEDER_BUS_MAP
from powerzoo_compat.powerzoo_api.tasks.dso import DSO_FLEXLOAD_CONFIG as DSO_FLEXLOAD_CONFIG
from powerzoo_compat.powerzoo_api.tasks.dso import DSO_V_MAX as DSO_V_MAX
from powerzoo_compat.powerzoo_api.tasks.dso import DSO_V_MIN as DSO_V_MIN
from powerzoo_compat.powerzoo_api.tasks.dso import compute_dso_metrics as compute_dso_metrics
from powerzoo_compat.powerzoo_api.tasks.dso import dso_droop_heuristic_rollout as dso_droop_heuristic_rollout
from powerzoo_compat.powerzoo_api.tasks.dso import dso_no_control_rollout as dso_no_control_rollout
from powerzoo_compat.powerzoo_api.tasks.dso import dso_tou_heuristic_rollout as dso_tou_heuristic_rollout
from powerzoo_compat.powerzoo_api.tasks.dso import make_dso_1flex_env as make_dso_1flex_env
from powerzoo_compat.powerzoo_api.tasks.dso import make_dso_env as make_dso_env
from powerzoo_compat.powerzoo_api.tasks.dso import rollout_dso as rollout_dso
