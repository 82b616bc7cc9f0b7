"""How far exported policies are from the run's own, for every agent and both formats: a JSON record.

    python tools/measure_exports.py RECORD [AGENT…]

Each agent trains for ten steps on a few episodes of the embedded desk whose actions lie in [-2, 2], [0.5, 10.5] and
[-30, 3]; on states, which are normalised, and with `visual-` before its name on images. The differences are those of
`cta export`: the largest of actions in [-1, 1], on 1,000 random pairs.
"""

import sys
import tempfile
from pathlib import Path
from typing import get_args

from cta import TrajectoryDataset, train
from cta.agents import REGISTRY
from cta.envs.datasets import generate_desk
from cta.export import Format, export_policy
from cta.io.json_files import read_json
from cta.io.provenance import hardware, versions
from cta.units import make_bounds
from cta_bench.command import write

LOW, HIGH = (-2, 0.5, -30), (2, 10.5, 3)
STEPS, SEED = 10, 0


def measure(name: str) -> list[dict]:
    agent = name.removeprefix("visual-")
    world = "visual-desk" if agent != name else "desk"
    made, _ = generate_desk(f"{world}-play-v0", episodes=8, episode_steps=49, seed=0)
    actions = make_bounds(LOW, HIGH, 3, label=name).from_unit(made.actions)
    data = TrajectoryDataset.from_arrays(
        made.observations, actions, made.terminals, action_low=LOW, action_high=HIGH, name=world
    )
    settings = {"batch_size": 16 if agent != name else 256}
    options = {"size": "small", "quiet": True, "eval_interval": 0, "normalise_observations": agent == name}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = train(data, agent=agent, steps=STEPS, run_dir=str(place / "run"), agent_settings=settings, **options)
        checks = {
            format: read_json(export_policy(run, place / format, format=format) / "policy.json")["check"]
            for format in get_args(Format)
        }
    facts = {"agent": agent, "world": world, "low": LOW, "high": HIGH, "steps": STEPS, "seed": SEED}
    return [{"what": "export", **facts, "format": format, **check} for format, check in checks.items()]


def main() -> None:
    record, *names = sys.argv[1:]
    entries = []
    for name in names or [*REGISTRY, "visual-gcivl", "visual-cta"]:
        entries += measure(name)
        print(entries[-2:], flush=True)
        write(Path(record), entries, {**hardware(), "versions": versions(("onnx", "onnxruntime"))})


if __name__ == "__main__":
    main()
