"""Settings shared by all tests: shapes are checked, the user's own files are never touched, rendering is optional."""

import atexit
import os
import shutil
import tempfile
from importlib.metadata import version

# Before any import of JAX or the package: a folder of their own for datasets, the CPU, and silence.
os.environ["OGBENCH_DATA_DIR"] = tempfile.mkdtemp(prefix="cta-test-data-")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compiling is most of the suite's time; tests, workers and command lines share what they compile.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"cta-test-xla-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# And most of compiling is making fast code: here, and in all that tests start, it is made quickly instead. On a GPU,
# programs are tested as they are compiled for people. XLA_FLAGS= in the environment does so on a CPU, too. Another
# version may not know these flags, and would refuse to start.
if os.environ["JAX_PLATFORMS"] == "cpu" and version("jaxlib").startswith("0.10."):
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    quick += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    quick += " --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
    os.environ.setdefault("XLA_FLAGS", quick)

import jaxtyping
import pytest

jaxtyping.install_import_hook(["cta.nn", "cta.losses", "cta.goals"], "beartype.beartype")

try:
    from hypothesis import settings
except ImportError:  # the tests of kernels run on machines that have little else
    pass
else:
    # The same examples every time: what breaks is the work of a change, not of dice. HYPOTHESIS_PROFILE=explore rolls.
    # No deadline: that would measure the neighbours.
    settings.register_profile("repeatable", derandomize=True, deadline=None)
    settings.register_profile("explore", derandomize=False, deadline=None)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

atexit.register(shutil.rmtree, os.environ["OGBENCH_DATA_DIR"], ignore_errors=True)

SKIPPED = {"gl": "no OpenGL library (make system)", "browser": "no Chromium (make system)"}


def pytest_collection_modifyitems(items):
    for name, there in (("gl", _opengl), ("browser", _chromium)):
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and not there():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=SKIPPED[name]))


def _opengl():
    from cta.envs.worlds import find_backend

    return find_backend() is not None


def _chromium():
    from browser import find_chromium

    return find_chromium() is not None


def pytest_terminal_summary(terminalreporter):
    for reason in SKIPPED.values():
        skipped = [r for r in terminalreporter.stats.get("skipped", []) if reason in str(r.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests skipped: {reason}")


@pytest.fixture(scope="module")
def quick_compilation():
    """A random generator that is a short program: threefry is a long one, and inlined at every draw."""
    import jax

    before = jax.config.jax_default_prng_impl
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    yield
    jax.config.update("jax_default_prng_impl", before)
