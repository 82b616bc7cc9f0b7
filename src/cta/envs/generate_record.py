"""Where a dataset comes from: the record written inside its file."""

import re
from typing import Any

from cta.envs import gl
from cta.envs.names import DESK_DATASETS, is_visual
from cta.provenance import versions

SIMULATOR = ("mujoco", "dm-control", "ogbench", "gymnasium", "numpy", "scipy")
EMBEDDED = ("jax", "jaxlib", "numpy")
UNKNOWN = "unknown"


def provenance(name: str, *, split: str, episodes: int, episode_steps: int, seed: int) -> dict[str, Any]:
    """What fixes the bytes of a generated file, and nothing else: no clock, no machine, no number of workers."""
    command = f"cta data generate {name} --episodes {episodes} --episode-steps {episode_steps} --seed {seed}"
    record = {
        "created_by": "cta",
        "command": command,
        "dataset": name,
        "split": split,
        "episodes": episodes,
        "episode_steps": episode_steps,
        "seed": seed,
        "versions": versions(EMBEDDED if name in DESK_DATASETS else SIMULATOR),
    }
    if is_visual(name):
        record["rendering"] = gl.find_backend()
    return record


def simulator_notice(record: dict[str, Any] | None) -> str | None:
    """A line about data and simulator from different sides of MuJoCo 3.5, where the arm's dynamics changed.

    Data without a record is taken for OGBench's published data, which is from before. Data that was cut out of other
    data speaks for its source. Nothing is said of records that others wrote in ways of their own.
    """
    if record is not None and "source" in record:
        record = _entry(record["source"] or {}, "provenance")
    made_by = "before 3.5" if record is None else _entry(_entry(record, "versions"), "mujoco")
    here = versions(("mujoco",))["mujoco"]
    sides = [False if record is None else _after_change(made_by), _after_change(here)]
    if None in sides or sides[0] == sides[1]:
        return None
    return (
        f"the data is from MuJoCo {made_by}, the simulator here is {here}: "
        "the arm's dynamics changed in 3.5, so scores are not comparable"
    )


def _entry(record: Any, key: str) -> Any:
    """An entry of a dictionary, None if it has none; of all else UNKNOWN."""
    return record.get(key) if isinstance(record, dict) else UNKNOWN


def _after_change(mujoco: Any) -> bool | None:
    """Whether a version is 3.5 or later; None if it is no version."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", mujoco) if isinstance(mujoco, str) else None
    return None if found is None else (int(found[1]), int(found[2])) >= (3, 5)
