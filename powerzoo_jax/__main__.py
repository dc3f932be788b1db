"""`python -m powerzoo_jax` is the command line."""

import sys

from powerzoo_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
