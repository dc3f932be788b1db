"""Markets and the microgrid as environments of their own."""

from __future__ import annotations

from typing import Any

from powerzoo_compat._apart import built_apart, make
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.grids.cases import core_name
from powerzoo_jax.families.market.tasks.storage import make_storage_market

GENCOS, MICROGRID = "gencos_bidding", "dc_microgrid"


class MarketEnv(SingleAgentEnv):
    """Price-making battery: it trades at the price of its bus, which its power moves; action [-1, 1] of its power.

    kind:      "cost" or "bid", what the units offer
    keywords:  those of `powerzoo_jax.families.market.tasks.storage.StorageMarketSettings`
    """

    kind: str

    def __init__(
        self, case: Any = "Case5", *, split: str = "train", render_mode: str | None = None, **keywords: Any
    ) -> None:
        sim = built_apart(lambda: make_storage_market(self.kind, split=split, case=core_name(case), **keywords))
        super().__init__(sim, render_mode=render_mode)


class CostBasedMarketEnv(MarketEnv):
    """The market cleared on the true costs of its units; see `MarketEnv`."""

    kind = "cost"


class BidBasedMarketEnv(MarketEnv):
    """The market cleared on offers whose markups are drawn once an episode; see `MarketEnv`."""

    kind = "bid"


class GenCosMARLEnv(MultiAgentTaskEnv):
    """Generating companies that bid into one market; keywords are those of the task `gencos_bidding`."""

    def __init__(self, *, split: str = "train", render_mode: str | None = None, **keywords: Any) -> None:
        super().__init__(make(GENCOS, split=split, **keywords), render_mode=render_mode)


def make_gencos_env(**keywords: Any) -> GenCosMARLEnv:
    """Function form of `GenCosMARLEnv`."""
    return GenCosMARLEnv(**keywords)


class DCMicrogridEnv(SingleAgentEnv):
    """An islanded data centre with battery, sun and diesel; keywords are those of the task `dc_microgrid`."""

    def __init__(self, *, split: str = "train", render_mode: str | None = None, **keywords: Any) -> None:
        super().__init__(make(MICROGRID, split=split, **keywords), render_mode=render_mode)
