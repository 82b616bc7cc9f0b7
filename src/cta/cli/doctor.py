"""cta doctor"""

import os
import shutil
import sys

import tyro
from rich.console import Console
from rich.table import Table

from cta.cli import DONE

DESCRIPTION = "Show what this machine offers: devices, versions, rendering, data folders."


def main(argv: list[str]) -> int:
    tyro.cli(lambda: None, args=argv, prog="cta doctor", description=DESCRIPTION)
    from cta.compilation import cache_folder
    from cta.data import dataset_folder
    from cta.envs.gl import find_backend
    from cta.envs.names import KNOWN
    from cta.provenance import commit, hardware, versions

    table = Table(show_header=False, title="cta doctor")
    table.add_column(style="bold")
    table.add_column()
    machine = hardware()
    table.add_row("device", f"{machine['devices']} × {machine['device']} ({machine['backend']})")
    table.add_row("processor", f"{machine['cpu']}, {machine['cores']} cores")
    for name, found in versions().items():
        table.add_row(name, found)
    table.add_row("commit", commit() or "not a source checkout")
    table.add_row("rendering", find_backend() or "none: `make system`, or install libegl1 or libosmesa6")
    table.add_row("chromium", shutil.which("chromium") or shutil.which("google-chrome") or "none (`make system`)")
    folder = dataset_folder()
    present = [name for name in KNOWN if (folder / f"{name}.npz").exists()]
    table.add_row("data folder", f"{folder} ({'exists' if folder.is_dir() else 'not there yet'})")
    table.add_row("datasets", ", ".join(present) or "none (`cta data list`)")
    table.add_row("compiled programs", str(cache_folder()))
    free = shutil.disk_usage(folder if folder.is_dir() else os.path.expanduser("~")).free
    table.add_row("disk free", f"{free / 2**30:.0f} GiB")
    Console(highlight=False, file=sys.stdout).print(table)
    return DONE
