"""Offline goal-conditioned RL by analogy. Names are loaded on first use: whoever only steps a world imports no JAX."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cta.data import TrajectoryDataset
    from cta.errors import CtaError
    from cta.experiment import Run, load_policy, resume, train

try:
    __version__ = version("cta")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as on a machine without a package registry
    __version__ = "0.1.0"

__all__ = ["CtaError", "Run", "TrajectoryDataset", "__version__", "load_policy", "resume", "train"]
_HOME = {"TrajectoryDataset": "cta.data", "CtaError": "cta.errors"}  # of those that are not from `cta.experiment`


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "cta.experiment")), name)
    raise AttributeError(f"module 'cta' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
