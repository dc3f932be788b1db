"""Commands of `powerzoo-jax`, one module each."""
