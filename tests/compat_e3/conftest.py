"""These tests run in an environment of their own (`make test-compat`); without it there is nothing to collect."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("gymnax") else ["test_*.py"]
