"""Drop-in for the PowerZoo Python API, served by powerzoo_jax. Importing registers the Gymnasium ids `PowerZoo/...`."""

from powerzoo_compat.powerzoo_api.guard import refuse_name_clash as _refuse_name_clash

_refuse_name_clash()  # before anything that mixed files could break

from powerzoo_compat.powerzoo_api.aliases import install as _install_aliases  # noqa: E402  guard first
from powerzoo_compat.powerzoo_api.lazy import TOP_LEVEL as _TOP_LEVEL  # noqa: E402
from powerzoo_compat.powerzoo_api.tasks.factory import list_public_tasks as list_public_tasks  # noqa: E402
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks as list_tasks  # noqa: E402
from powerzoo_compat.powerzoo_api.tasks.factory import make_task as make_task  # noqa: E402
from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env as make_task_env  # noqa: E402

from powerzoo_jax.base.exports import on_demand as _on_demand  # noqa: E402

_install_aliases()

__version__ = "0.2.0"  # of the contract, not of powerzoo_jax
__license__ = "MIT"

__getattr__ = _on_demand(__name__, _TOP_LEVEL)
