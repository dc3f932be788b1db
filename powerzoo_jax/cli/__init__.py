"""The command line `powerzoo-jax`; every command imports what it needs when it runs."""

from powerzoo_jax.cli.main import main as main
