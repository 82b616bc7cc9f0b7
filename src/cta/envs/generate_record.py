"""Where a dataset comes from: the record written inside its file."""

from typing import Any

from cta.envs import gl
from cta.envs.names import DESK_DATASETS, is_visual
from cta.provenance import versions

SIMULATOR = ("mujoco", "dm-control", "ogbench", "gymnasium", "numpy", "scipy")
EMBEDDED = ("jax", "jaxlib", "numpy")


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
    data speaks for its source.
    """
    if record is not None and "source" in record:
        record = (record["source"] or {}).get("provenance")
    made_by = (record or {}).get("versions", {}).get("mujoco", "3.1.6" if record is None else None)
    here = versions(("mujoco",))["mujoco"]
    if made_by is None or _after_change(made_by) == _after_change(here):
        return None
    return (
        f"the data is from MuJoCo {made_by if record else 'before 3.5'}, the simulator here is {here}: "
        "the arm's dynamics changed in 3.5, so scores are not comparable"
    )


def _after_change(mujoco: str) -> bool:
    major, minor = (int(part) for part in mujoco.split(".")[:2])
    return (major, minor) >= (3, 5)
