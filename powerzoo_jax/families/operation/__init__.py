"""Operation of a transmission grid by its topology: busbars, lines, redispatch."""

from typing import TYPE_CHECKING

from powerzoo_jax.base.exports import on_demand as _on_demand

if TYPE_CHECKING:
    from powerzoo_jax.families.operation.actions import to_grid2op as to_grid2op
    from powerzoo_jax.families.operation.grid2op.example import write_world as write_world
    from powerzoo_jax.families.operation.players import as_policy as as_policy
    from powerzoo_jax.families.operation.players import best_action as best_action
    from powerzoo_jax.families.operation.players import greedy as greedy
    from powerzoo_jax.families.operation.players import recovery as recovery
    from powerzoo_jax.families.operation.players import when_hot as when_hot

_PLAYERS = ("as_policy", "best_action", "greedy", "recovery", "when_hot")
__getattr__ = _on_demand(
    __name__,
    {
        "to_grid2op": f"{__name__}.actions",
        "write_world": f"{__name__}.grid2op.example",
        **dict.fromkeys(_PLAYERS, f"{__name__}.players"),
    },
)
