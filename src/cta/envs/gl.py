"""OpenGL without a display: chosen only when somebody wants to see something.

MuJoCo reads the variable MUJOCO_GL once, when it is imported. States, data generation and evaluation need no OpenGL at
all, so nothing here runs until a frame is asked for.
"""

import os
import subprocess
import sys
from functools import cache
from importlib import import_module

from cta.errors import CtaError
from cta.plugins import PYTHON

BACKENDS = ("egl", "osmesa")
_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"
ADVICE = "run `make system`, or install libegl1 and libgl1-mesa-dri (EGL) or libosmesa6 (OSMesa) with apt"


@cache
def find_backend() -> str | None:
    """The first backend that can open a context: EGL, else OSMesa, else None.

    Tried in a fresh process, because PyOpenGL binds to one platform for the life of a process.
    """
    asked = os.environ.get("MUJOCO_GL", "").lower()
    for backend in (asked,) if asked in BACKENDS else BACKENDS:
        command = [*PYTHON, "-c", _PROBE]
        probe = subprocess.run(command, env=os.environ | _settings(backend), capture_output=True, check=False)
        if probe.returncode == 0:
            return backend
    return None


def _settings(backend: str) -> dict[str, str]:
    return {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}


def enable_rendering() -> str:
    """Make MuJoCo of this process, and of the processes it starts, draw off screen; returns the backend's name."""
    backend = find_backend()
    if backend is None:
        raise CtaError(f"no OpenGL library that can draw without a display: {ADVICE}")
    os.environ.update(_settings(backend))
    if "mujoco" in sys.modules:  # imported before anybody asked for frames, so with another backend
        module = import_module("mujoco.gl_context")
        module.__dict__["GLContext"] = import_module(f"mujoco.{backend}").GLContext
    return backend
