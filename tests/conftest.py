"""What every test shares: one XLA thread per process, a compilation cache, and strict promotion for the kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "powerzoo_jax"

# Before the first import of jax. Parallel workers would otherwise fight for the cores, and a product
# split over threads may sum in another order from one run to the next.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
# Tests start processes (notebooks, examples, commands): they share compiled programs, also the quick ones.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# XLA's LU is SciPy's OpenBLAS, whose threads spin while they wait: ten times slower beside another process.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import jax  # noqa: E402  XLA reads its flags once, on import
import pytest  # noqa: E402

from powerzoo_jax.base.solver_mode import AUTO, MODES, auto_is  # noqa: E402

TESTS = Path(__file__).parent
# optax, gymnax and plotting need standard promotion; everything else runs under the strict one
STANDARD_FOLDERS = frozenset(
    {"rl", "cli", "plot", "compat", "compat_e1", "compat_e3", "docs", "notebooks", "packaging"}
)

# What these test does not hang on how a program is optimised, and compiling is most of what they take: their programs
# are compiled without optimisation, in half the time. `make test-long` compiles them as users do.
PLAIN_FOLDERS = frozenset({"cli", "compat", "compat_e1", "compat_e3", "docs", "oracle", "plot", "rl", "study", "tasks"})
# of a family: what it plans and builds; its environment's laws are tested as users compile them
PLAIN_OF_FAMILY = frozenset({"arbitrage", "causal", "commitment", "plan", "tasks", "test_causal.py", "test_plan.py"})
UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
OPTIMISED = "POWERZOO_TESTS_OPTIMISED"

# again for a plugin that imported jax before this file was read
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update(
    "jax_persistent_cache_min_compile_time_secs", float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a whole run solve as accelerators do: `python -m tools.accelerators.suites` runs the references so."""
    parser.addoption("--auto-is", default=AUTO, choices=MODES, help="what solvers and tasks take for solver='auto'")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark parameters whose tiers differ, as `tiers` beside their test says, so that `-m` chooses them."""
    for item in items:
        if (row := item.get_closest_marker("tiers")) is not None:
            rest = row.args[0] if row.args else "quick"
            tier = next((tier for tier, ids in row.kwargs.items() if item.callspec.id in ids), rest)  # type: ignore[attr-defined]
            if tier != "quick":
                item.add_marker(tier)


@pytest.fixture(autouse=True)
def strict_promotion(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turn silent broadcasts and dtype mixes into errors, except where optax and gymnax need them."""
    if request.path.relative_to(TESTS).parts[0] in STANDARD_FOLDERS:
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(autouse=True, scope="session")
def mode_of_auto(pytestconfig: pytest.Config) -> Iterator[None]:
    """Trace every program of the run with another mode for "auto"."""
    mode = pytestconfig.getoption("auto_is")
    with auto_is(mode) if mode != AUTO else nullcontext():
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Drop a module's compiled programs when it ends: thousands of them exhaust a process's memory maps."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def plain_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile without optimisation what the tests of some folders run, here and in processes that they start."""
    top, *inner = request.path.relative_to(TESTS).parts
    plain = inner[1] in PLAIN_OF_FAMILY if top == "families" else top in PLAIN_FOLDERS
    if not plain or os.environ.get(OPTIMISED):
        yield
        return
    before = jax.config.read(UNOPTIMISED.lower())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNOPTIMISED, "1")
        jax.config.update(UNOPTIMISED.lower(), True)
        yield
        jax.config.update(UNOPTIMISED.lower(), before)


@pytest.fixture(scope="session")
def cache_folder() -> Path:
    """Folder of the user's cache for results that take long to compute; a test must pass when it is empty."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


@pytest.fixture
def run_snippet(tmp_path: Path) -> Callable[[str], str]:
    """Run Python as a reader would paste it into a file elsewhere, and return what it prints."""

    def run(body: str) -> str:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS.parent / "compat")))}
        done = subprocess.run(
            [sys.executable, "-c", body], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def snippets_of() -> Callable[[str], list[str]]:
    """The Python that a Markdown page shows, block by block."""

    def snippets(page: str) -> list[str]:
        return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    return snippets
