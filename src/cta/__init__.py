"""Offline goal-conditioned reinforcement learning by analogy.

Public names are loaded on first use, so that worker processes which only step a simulator never import JAX.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cta.data import TrajectoryDataset as TrajectoryDataset
    from cta.errors import CtaError as CtaError
    from cta.experiment import Run as Run
    from cta.experiment import load_policy as load_policy
    from cta.experiment import resume as resume
    from cta.experiment import train as train

try:
    __version__ = version("cta")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as on a machine without a package registry
    __version__ = "0.1.0"

__all__ = ["CtaError", "Run", "TrajectoryDataset", "__version__", "load_policy", "resume", "train"]
_HOME = {"TrajectoryDataset": "cta.data", "CtaError": "cta.errors"}
"""Of those that are not from `cta.experiment`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "cta.experiment")), name)
    raise AttributeError(f"module 'cta' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
