import shutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """Show what this machine offers: devices, versions, rendering, data folders."""

    def __call__(self) -> None:
        from cta.compilation import xla_folder
        from cta.data import dataset_folder
        from cta.envs.names import KNOWN
        from cta.envs.worlds import find_backend
        from cta.io.provenance import commit, hardware, versions
        from cta.io.text_tables import print_table

        machine, folder = hardware(), dataset_folder()
        present = [name for name in KNOWN if (folder / f"{name}.npz").exists()]
        existing = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
        free = shutil.disk_usage(existing).free
        rows = {
            "device": f"{machine['devices']} × {machine['device']} ({machine['backend']})",
            "processor": f"{machine['cpu']}, {machine['cores']} cores",
            **versions(),
            "commit": commit() or "not a source checkout",
            "rendering": find_backend() or "none: `make system`, or install libegl1 or libosmesa6",
            "chromium": shutil.which("chromium") or shutil.which("google-chrome") or "none (`make system`)",
            "data folder": f"{folder} ({'exists' if folder.is_dir() else 'not there yet'})",
            "datasets": ", ".join(present) or "none (`cta data list`)",
            "compiled programs": str(xla_folder()),
            "disk free": f"{free / 2**30:.0f} GiB",
        }
        print_table([("cta doctor", ""), *rows.items()])
