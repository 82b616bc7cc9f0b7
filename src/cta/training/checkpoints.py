"""Checkpoints: a folder a step, written by Orbax, holding every seed's arrays under readable names.

`networks` is what acting needs; `training` is what continuing needs besides (targets, optimiser, step, metric sums).
Both are flat: `value/members/0/anchor/layers/2/kernel` → array with a leading axis of seeds. `manifest.json` holds the
checksum of every array as it was in memory and of every file, which seeds were healthy, and the settings that the
weights belong to. A checkpoint without it (layout 1, or somebody removed it) is read only if it may be `unverified`.
A folder is renamed to its number when it is complete: under its number it is whole or not there.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from cta import __version__
from cta.agents import Networks
from cta.config import RunConfig, to_dict
from cta.errors import CtaError
from cta.io.files import sync_folder as _sync
from cta.io.files import write_whole
from cta.io.json_files import check_shape, read_json
from cta.training.learner import TrainState

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
LAYOUT = 2  # 1: no manifest, no `bad`. 2: both
MANIFEST = {"arrays!": {...: str}, "files!": {...: str}, "healthy!": [bool], "settings!": dict}
WRITING, DELETED, DAMAGED = ".writing-", ".deleted-", "damaged-"


class Damaged(CtaError):
    """A checkpoint that cannot be read, or whose arrays are not those that were saved."""


class Checkpoints:
    """The `checkpoints/` folder of a run. Saving happens in the background; a step appears when it is complete.

    `keep(steps)` says which of the complete steps to keep, after every save (default: all). What is loaded must fit the
    `config`, if one is given: other seeds or shapes are errors, other settings are told to `notice`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        create: bool = False,
        keep: Callable[[list[int]], Collection[int]] | None = None,
        config: RunConfig | None = None,
        unverified: bool = False,
        notice: Callable[[str], None] | None = None,
    ):
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise CtaError(f"{folder}: no checkpoints here yet")
        self.folder, self._keep, self._unverified = folder, keep, unverified
        # Cached: each notice is told once.
        self._notice = functools.cache(notice or functools.partial(print, file=sys.stderr))
        self._owner: dict[str, Any] = {}
        if config is not None:
            settings = json.loads(json.dumps(to_dict(config.agent)))
            self._owner = {"seeds": list(config.seeds), "agent": config.agent_name, "settings": settings}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: Future[None] | None = None

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return sorted(int(entry.name) for entry in self.folder.iterdir() if entry.name.isdecimal())

    def clear_remains(self) -> None:
        """Remove what killed processes left half written or half deleted. Only for the run's owner."""
        for entry in self.folder.iterdir():
            if entry.name.startswith((WRITING, DELETED)):
                shutil.rmtree(entry, ignore_errors=True)

    def save(self, state: TrainState) -> None:
        """Write `SeedGroup.snapshot()`'s output, once the one before is written; does nothing if the step is there."""
        self.wait()
        step = int(np.asarray(state.step).max())
        if not (self.folder / str(step)).exists():
            self._saving = self._thread.submit(self._write, step, state)

    def _write(self, step: int, state: TrainState) -> None:
        fresh = self.folder / f"{WRITING}{step}"
        try:
            arrays = {name: np.asarray(array) for name, array in flatten(state._asdict()).items()}
            items: dict[str, Arrays] = {"networks": {}, "training": {}}
            for name, array in arrays.items():
                items[_item(name)][name] = array
            self.clear_remains()
            _write_arrays(fresh, **items)
            facts = {"layout": LAYOUT, "cta": __version__, "step": step, "healthy": _healthy(arrays)}
            digests = {name: _digest(array) for name, array in arrays.items()}
            manifest = facts | {"arrays": digests} | self._owner | {"files": _file_digests(fresh)}
            write_whole(fresh / "manifest.json", json.dumps(manifest, indent=1))
            os.rename(fresh, self.folder / str(step))
            _sync(self.folder)
        except Exception as error:
            with contextlib.suppress(OSError):
                self.clear_remains()
            raise CtaError(f"{self.folder}/{step}: this checkpoint could not be written ({_reason(error)})") from error
        self.prune()

    def prune(self) -> None:
        if self._keep is None:
            return
        steps = self.steps()
        for step in sorted(set(steps) - set(self._keep(steps))):
            # Renamed first: a process killed in the middle must not leave half a checkpoint under its number.
            gone = self.folder / f"{DELETED}{step}"
            os.rename(self.folder / str(step), gone)
            shutil.rmtree(gone, ignore_errors=True)

    def load(self, step: int, structure: TrainState) -> TrainState:
        """The whole state of a step, verified, with a leading axis of seeds."""
        arrays = self._read(step, "networks", "training")
        if "step" in arrays:  # layout 1 lacks it
            arrays.setdefault("bad", np.zeros((len(arrays["step"]), structure.bad.shape[-1]), np.int32))
        return TrainState(**unflatten(structure._asdict(), arrays, f"{self.folder}/{step}"))

    def load_networks(self, step: int, structure: Networks) -> Networks:
        """The networks of a step, verified, with a leading axis of seeds."""
        arrays = self._read(step, "networks")
        return unflatten({"networks": structure}, arrays, f"{self.folder}/{step}")["networks"]

    def _read(self, step: int, *items: str) -> Arrays:
        where = self.folder / str(step)
        manifest = read_manifest(where)
        if manifest is None:
            if not self._unverified:
                old = "if an old version of cta wrote it, which had none, --unverified uses it as it is"
                raise CtaError(f"{where}: manifest.json is missing, so the checkpoint may be damaged; {old}")
            self._notice(f"notice: checkpoints in {self.folder} have no manifest.json: they are used unverified")
        elif self._owner:
            self._compare(where, manifest)
        files = {} if manifest is None else {n: d for n, d in manifest["files"].items() if _is_in(n, items)}
        try:
            # The files before anything tries to make sense of them.
            found = _file_digests(where, items)
            changed = [name for name, digest in files.items() if found.get(name) != digest]
            arrays = {} if changed else _read_arrays(where, items)
        except Exception as error:
            raise Damaged(f"{where}: this checkpoint cannot be read ({_reason(error)})") from error
        if manifest is not None and not changed:
            saved = {name: digest for name, digest in manifest["arrays"].items() if _item(name) in items}
            found = {name: _digest(array) for name, array in arrays.items()}
            changed = [f"'{name}'" for name in sorted({*saved, *found}) if saved.get(name) != found.get(name)]
        if changed:
            raise Damaged(f"{where}: this checkpoint is damaged ({changed[0]} is not what was saved)")
        if self._owner and any(array.shape[:1] != (len(self._owner["seeds"]),) for array in arrays.values()):
            raise CtaError(f"{where}: not the checkpoint of {len(self._owner['seeds'])} seeds, as config.json has them")
        return arrays

    def _compare(self, where: Path, manifest: dict[str, Any]) -> None:
        """The settings that the weights belong to with those of the run."""
        for name in ("seeds", "agent"):
            if manifest.get(name, self._owner[name]) != self._owner[name]:
                change = f"{name} {manifest[name]} and config.json says {self._owner[name]}"
                raise CtaError(f"{where} was saved with {change}: put it back as it was, or begin a new run")
        new = self._owner["settings"]
        old = manifest.get("settings") or new
        for name in [name for name in new if old.get(name) != new[name]]:
            change = f"the agent's {name} was {old.get(name)} when weights were saved and is {new[name]} now"
            self._notice(f"notice: {self.folder}: {change}")

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint, so that its step can be saved again."""
        aside = self.folder / f"{DAMAGED}{step}"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(self.folder / str(step), aside)
        return aside

    def check(self) -> None:
        """Raise here what went wrong in the background."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Until everything saved is on disk."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def close(self) -> None:
        self._thread.shutdown()


def read_manifest(checkpoint: Path) -> dict[str, Any] | None:
    """What a checkpoint says about itself; None for layout 1."""
    where = checkpoint / "manifest.json"
    if not where.exists():
        return None
    try:
        values = {"files": {}, "settings": {}, **read_json(where, {"layout!": int})}
        newer = values["layout"] > LAYOUT
        check_shape(values, None if newer else MANIFEST, str(where))
    except CtaError as error:
        raise Damaged(f"{checkpoint}: this checkpoint is damaged (its manifest cannot be read)") from error
    if newer:
        raise CtaError(f"{checkpoint} was written by a newer cta ({values.get('cta')}): upgrade to read it")
    return values


def healthy_seeds(checkpoint: Path) -> list[bool] | None:
    """For each seed, in order, whether its numbers were good; None if the checkpoint does not say."""
    try:
        manifest = read_manifest(checkpoint)
    except CtaError:
        return None
    return None if manifest is None else manifest["healthy"]


def _healthy(arrays: Arrays) -> list[bool]:
    seeds = len(arrays["step"])
    healthy = ~arrays["bad"].reshape(seeds, -1).any(axis=1)
    for name, array in arrays.items():
        # A gradient that is not a number shows in the weights one step before it shows in a loss.
        if _item(name) == "networks" and jnp.issubdtype(array.dtype, jnp.floating) and array.size:
            healthy &= np.isfinite(array.reshape(seeds, -1)).all(axis=1)
    return np.asarray(healthy).tolist()


def _file_digests(folder: Path, items: Collection[str] = ("networks", "training")) -> dict[str, str]:
    """Of the files of these items, and of those that belong to none."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and _is_in(name, items):
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _is_in(file: str, items: Collection[str]) -> bool:
    return "/" not in file or file.split("/")[0] in items


def _item(array: str) -> str:
    return "networks" if array.startswith("networks/") else "training"


def _digest(array: np.ndarray) -> str:
    content = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return content.hexdigest()


@functools.cache
def _orbax() -> Any:
    """Orbax, silenced: what it raises is told in one line, but it would also log it, once for every array."""
    import orbax.checkpoint as ocp  # seconds to import

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    tell = sys.unraisablehook

    def tell_others(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            tell(unraisable)

    sys.unraisablehook = tell_others
    return ocp


def _write_arrays(folder: Path, **items: Arrays) -> None:
    ocp = _orbax()
    saved = {name: ocp.args.StandardSave(arrays) for name, arrays in items.items()}
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
        writer.save(folder.absolute(), args=ocp.args.Composite(**saved))


def _read_arrays(folder: Path, items: Collection[str]) -> Arrays:
    ocp = _orbax()
    wanted = ocp.args.Composite(**{item: ocp.args.StandardRestore() for item in items})
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
        stored = reader.restore(folder.absolute(), args=wanted)
    return {name: np.asarray(array) for item in items for name, array in stored[item].items()}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error)
    # What the array store says runs over several lines, the cause near its end.
    known = ("No space left on device", "File too large", "Disk quota exceeded", "Read-only file system")
    return next((cause for cause in known if cause in text), (text.splitlines() or [type(error).__name__])[0])


def flatten(tree: Any) -> dict[str, Any]:
    """Leaves by readable path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def unflatten(structure: T, arrays: Arrays, where: str) -> T:
    """`structure` with the stored arrays, which may have a leading axis of seeds, in place of its leaves."""
    leaves = flatten(structure)
    for name, leaf in leaves.items():
        if name not in arrays:
            raise CtaError(f"{where}: '{name}' is not in this checkpoint; was it written by another version or agent?")
        found, wanted = np.shape(arrays[name]), np.shape(leaf)
        if wanted not in (found, found[1:]):
            change = f"'{name}' has the shape {found}, and the settings in config.json want {wanted} per seed"
            raise CtaError(f"{where}: {change}: put the settings back as they were, or begin a new run")
    return jax.tree.unflatten(jax.tree.structure(structure), [arrays[name] for name in leaves])
