"""The persistent compilation cache: a program compiled once starts in seconds the next time."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$JAX_COMPILATION_CACHE_DIR, else cta/xla in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or f"{base}/cta/xla").expanduser()


def enable_cache() -> None:
    """Keep compiled programs on disk; a folder that cannot be written only costs the speed."""
    import jax

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
