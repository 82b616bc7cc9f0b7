"""Programs kept whole on disk: a second start reads one, where JAX's own cache would trace and lower it once more.

To describe the hundreds of fused kernels of a step takes seconds. A kept program is found by all that it was made from:
this package's source, the versions and settings of what compiles it, the device, the agent and the shapes. Nothing is
kept in a process with code of somebody's own, which may be part of it.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from cta import plugins
from cta.compilation import programs_folder
from cta.io.files import write_whole
from cta.io.provenance import versions

PACKAGE = Path(__file__).parents[1]
MOST = 50  # programs on disk, of some megabytes each; the one not used for longest goes
SETTINGS = ("JAX_", "XLA_", "CUDA_", "NVIDIA_", "TF_")
"""Beginnings of the environment variables that may change what is compiled."""


class KeptProgram:
    """A jitted function whose result is built like its first argument, for the shapes that it is first called with.

    `recipe` says what it computes, as far as this package's source does not.
    """

    def __init__(self, function: Any, recipe: str):
        self.function, self._recipe = function, recipe
        self._program: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._program is None:
            self._program = self._found(arguments)
        return self._program(*arguments)

    def _found(self, arguments: tuple) -> Callable[..., Any]:
        folder = programs_folder()
        # XLA writes a program for a CPU only once: one that was itself read from JAX's cache comes out incomplete.
        partly = jax.default_backend() == "cpu" and jax.config.values["jax_enable_compilation_cache"]
        if folder is None or plugins.loaded or partly or not _is_ours(folder):
            return self.function
        path = folder / fingerprint(self._recipe, arguments)
        with suppress(Exception):  # absent, cut short, of another driver: whatever it is, compiling helps
            return _read(path, arguments)
        program = self.function.lower(*arguments).compile()
        with suppress(Exception):  # a full disk, or a device whose programs cannot be written: only the speed is lost
            write_whole(path, serialize_executable.serialize(program)[0])
            for old in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)[:-MOST]:
                old.unlink(missing_ok=True)
        return program


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have put a program there, for to read one is to run it. Makes the folder if needed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def fingerprint(recipe: str, arguments: Any) -> str:
    """A name for a program, from everything that it is made of."""
    leaves, tree = jax.tree.flatten(arguments)
    device = jax.local_devices()[0]
    parts = [
        (recipe, str(tree), versions()),
        [(leaf.shape, str(leaf.dtype)) for leaf in leaves],
        (device.platform, device.device_kind, device.client.platform_version),
        sorted((name, value) for name, value in os.environ.items() if name.startswith(SETTINGS)),
        sorted((name, str(value)) for name, value in jax.config.values.items() if "cache" not in name),
    ]
    digest = hashlib.sha256(repr(parts).encode())
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{file.relative_to(PACKAGE)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:32]


def _read(path: Path, arguments: tuple) -> Callable[..., Any]:
    program = path.read_bytes()
    with suppress(OSError):
        os.utime(path)  # used
    trees = jax.tree.structure((arguments, {})), jax.tree.structure(arguments[0])
    devices = sorted(jax.tree.leaves(arguments)[0].devices(), key=lambda device: device.id)
    return serialize_executable.deserialize_and_load(program, *trees, execution_devices=devices)
