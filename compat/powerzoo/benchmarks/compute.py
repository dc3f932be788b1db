"""`python -m powerzoo.benchmarks.compute TASK [--split test]` prints the reference returns of a task, computed anew."""

from powerzoo_compat.powerzoo_api.benchmarks.compute import main as main

if __name__ == "__main__":
    raise SystemExit(main())
