"""Views of powerzoo_jax in the dialects of other libraries; one host adapter, one module a dialect."""
