"""Power flow of meshed networks on CPUs by the compiled kernel of the package powerzoo-jax-native."""
