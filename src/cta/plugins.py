"""Code of one's own, named `module:name` on the command line; nothing else that lies about is imported."""

import importlib
import os
import sys
from typing import Any

from cta.errors import CtaError

PYTHON = [sys.executable, "-P"]
"""How processes of ours begin: what lies in the current folder, perhaps a stranger's, is not imported by its name."""
loaded: list[str] = []  # what has been asked for in this process


def is_code(name: str) -> bool:
    """Whether a name is of the form `module:name`."""
    return all(name.partition(":"))


def load_plugin(name: str, *, flag: str) -> Any:
    """What `module:name` stands for, or None if the module lacks it; the module may lie in the current folder."""
    loaded.append(name)
    module, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)  # to stay: what the module itself imports later lies there too
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # a module of one's own may fail in any way while it is imported
        raise CtaError(f"{flag} {name}: cannot import {module} ({type(error).__name__}: {error})") from error
