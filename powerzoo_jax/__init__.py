"""JAX-native, vectorised power-grid simulation for reinforcement learning."""

__version__ = "0.1.0"
