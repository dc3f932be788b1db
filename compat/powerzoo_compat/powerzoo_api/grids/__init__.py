"""Grids, markets and the simulations behind them."""
