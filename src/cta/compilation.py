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
        # The many small programs of a start, too: by default those that compile within a second are not kept.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


_keeping = False


def keep_programs() -> None:
    """Keep executables, too (`executable_cache`). For commands only: a notebook may have replaced our functions."""
    global _keeping
    _keeping = True


def programs_folder() -> Path | None:
    """Where whole programs are kept, if they are."""
    return cache_folder() / "programs" if _keeping else None


COMMANDS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE"
"""What may become part of a CUDA graph, in XLA's words: everything that a training step is made of, and the loop."""


def loop_options(more: dict[str, str], *, graph: bool = True) -> dict[str, str] | None:
    """For the compiler, of a loop with many small kernels: on a GPU the whole loop is one CUDA graph, and `more`.

    Kernels that do not need each other's results then run side by side, and none waits for the host. A profiler does
    not see into it: without `graph` kernels are launched one by one.
    """
    import jax

    if jax.default_backend() != "gpu":
        return None
    if not graph:
        return {"xla_gpu_enable_command_buffer": "", **more}
    return {**more, "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT", "xla_gpu_enable_command_buffer": COMMANDS}
