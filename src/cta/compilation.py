"""The persistent compilation cache: a program compiled once starts in seconds the next time."""

import os
from contextlib import suppress
from pathlib import Path

from cta.io.files import cache_folder, user_path


def xla_folder() -> Path:
    return user_path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder() / "xla")


def enable_cache() -> None:
    """Keep compiled programs on disk; a folder that cannot be written only costs the speed."""
    import jax

    folder = xla_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
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
    return xla_folder() / "programs" if _keeping else None


COMMANDS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONVOLUTION,DYNAMIC_SLICE_FUSION,WHILE"
"""What may become part of a CUDA graph, in XLA's words: everything that a training step is made of, and the loop."""


def loop_options(more: dict[str, str], *, graph: bool = True) -> dict[str, str] | None:
    """For the compiler, of a loop with many small kernels: on a GPU it is one CUDA graph, in which kernels run side by
    side and none waits for the host; without `graph`, for a profiler, they are launched one by one. And `more`."""
    import jax

    if jax.default_backend() != "gpu":
        return None
    if not graph:
        return {"xla_gpu_enable_command_buffer": "", **more}
    return {**more, "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT", "xla_gpu_enable_command_buffer": COMMANDS}
