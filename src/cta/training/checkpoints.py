"""Checkpoints: a folder a step, written by Orbax, holding every seed's arrays under readable names.

`networks` is what acting needs; `training` is what continuing needs besides (targets, optimiser, step, metric sums).
Both are flat: `value/members/0/anchor/layers/2/kernel` → array with a leading axis of seeds.
"""

import logging
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from cta.agents import Networks
from cta.errors import CtaError
from cta.training.learner import TrainState

T = TypeVar("T")


class Checkpoints:
    """The `checkpoints/` folder of a run. Writing happens in the background; a step appears when it is complete."""

    def __init__(self, folder: Path, *, create: bool = False):
        import orbax.checkpoint as ocp  # four seconds to import

        logging.getLogger("absl").setLevel(logging.ERROR)
        if not create and not folder.is_dir():
            raise CtaError(f"{folder}: no checkpoints here yet")
        self.folder = folder
        self._args = ocp.args
        options = ocp.CheckpointManagerOptions(create=create, max_to_keep=None)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, state: TrainState) -> None:
        """Write `SeedGroup.snapshot()`'s output; does nothing if the step is there already."""
        step = int(np.asarray(state.step).max())
        if step in self._manager.all_steps():
            return
        arrays = flatten(state._asdict())
        networks = {name: array for name, array in arrays.items() if name.startswith("networks/")}
        training = {name: array for name, array in arrays.items() if name not in networks}
        save = self._args.StandardSave
        self._manager.save(step, args=self._args.Composite(networks=save(networks), training=save(training)))

    def load(self, step: int, structure: TrainState) -> TrainState:
        """The whole state of a step, with a leading axis of seeds."""
        arrays = self._read(step, "networks", "training")
        return TrainState(**unflatten(structure._asdict(), arrays, f"{self.folder}/{step}"))

    def load_networks(self, step: int, structure: Networks) -> Networks:
        """The networks of a step, with a leading axis of seeds."""
        arrays = self._read(step, "networks")
        return unflatten({"networks": structure}, arrays, f"{self.folder}/{step}")["networks"]

    def _read(self, step: int, *items: str) -> dict[str, np.ndarray]:
        restore = {item: self._args.StandardRestore() for item in items}
        try:
            stored = self._manager.restore(step, args=self._args.Composite(**restore))
        except Exception as error:
            raise CtaError(f"{self.folder}/{step}: this checkpoint cannot be read ({_first_line(error)})") from error
        return {name: np.asarray(array) for item in items for name, array in stored[item].items()}

    def wait(self) -> None:
        """Until everything saved is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def flatten(tree: Any) -> dict[str, Any]:
    """Leaves by readable path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def unflatten(structure: T, arrays: dict[str, np.ndarray], where: str) -> T:
    """`structure` with the stored arrays in place of its leaves."""
    names = list(flatten(structure))
    missing = next((name for name in names if name not in arrays), None)
    if missing is not None:
        raise CtaError(f"{where}: '{missing}' is not in this checkpoint; was it written by another version or agent?")
    return jax.tree.unflatten(jax.tree.structure(structure), [arrays[name] for name in names])
