"""Kill a real run again and again, resume it, and compare it with one that was never killed.

The tests do it a few times (test_faults_kill.py). The long form:

    python tests/kill_and_resume.py FOLDER --checkpoint 8 --evaluation 7 --early 3 --random 7

The process is a whole `cta train` or `cta resume` (faults_child.py), ended by SIGKILL. Where each kill fell is read off
the trace it leaves: inside a checkpoint write (begun and not ended), inside an evaluation, before the first checkpoint
was complete, or elsewhere. A kind that was aimed at and not hit does not count, and is tried again.
"""

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("faults_child.py")
KINDS = ("checkpoint", "evaluation", "early", "random")
PLACES = ("arrays", "manifest", "renamed", "delete", None)
"""Where inside a checkpoint write to linger; None: nowhere, the kill then mostly falls into the writing of arrays."""
CLOCKS = ("time", "per_s", "memory")
TRAIN = {
    "agent": "gcivl",
    "dataset": "desk-play-v0",
    "seeds": "0,3",
    "agent.batch-size": "64",
    "agent.hidden": "32",
    "agent.lr": "0.003",
    "log-interval": "4",
    "eval-interval": "40",
    "eval-episodes": "100",
    "eval-tasks": "3",
    "eval-gaussian": "1.0",
    "checkpoint-interval": "8",
    "keep": "2",
}
"""So small that it learns little; the noise makes some episodes succeed. Nothing but zeros would compare nothing."""


@dataclass
class Kill:
    """One process, and where it died."""

    aim: str
    fell: set[str]
    where: str


@dataclass
class Campaign:
    """A run that is killed and resumed."""

    folder: Path
    steps: int = 240
    seed: int = 0
    say: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = self.folder / "killed"
        settings = TRAIN | {"steps": str(self.steps)}
        self.train = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._random = random.Random(self.seed)
        self._processes = 0
        self.kills: list[Kill] = []

    @contextmanager
    def reference(self) -> Iterator[Callable[[], Path]]:
        """The same run, never killed, beside the others; call what this yields to wait for its end."""
        path = self.folder / "straight"
        process, trace = self._start(["train", *self.train, "--run-dir", str(path)])

        def wait() -> Path:
            assert process.wait(timeout=900) == 0, self._said(trace)
            return path

        try:
            yield wait
        finally:
            process.kill()
            process.wait()

    def kill(self, aim: str) -> Kill:
        """Start or resume, and end the process at a moment of this kind."""
        words = ["resume", str(self.run)]
        if not (self.run / "config.json").exists():
            words = ["train", *self.train, "--run-dir", str(self.run)]
        place = self._random.choice(PLACES) if aim == "checkpoint" else aim
        # Slow blocks, so that the run does not end before it was killed often enough.
        slow = {"block": 0.05 if aim == "checkpoint" else 0.3, place or "": 1.0}
        process, trace = self._start(words, slow)
        try:
            self._wait_for(aim, place, process, trace)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        kill = self._read(aim, trace)
        self.kills.append(kill)
        if self.say:
            print(f"kill {len(self.kills):2}: aimed at {aim:10} fell: {kill.where}", flush=True)
        return kill

    def _wait_for(self, aim: str, place: str | None, process: subprocess.Popen, trace: Path) -> None:
        """Until the chosen moment. How far into it is up to chance."""
        if aim == "early":
            mark, delay = self._random.choice([("begin data", 0.5), ("begin block", 0.3), ("end rows train.csv", 0.01)])
        elif aim == "random":
            mark, delay = "begin block", 6.0
        else:
            mark, delay = f"begin {place or 'arrays'}", 0.8 if place else 0.05
        # Not always the first of its kind.
        count = self._random.randint(1, 3) if aim == "checkpoint" else 1
        deadline = time.monotonic() + 600
        while trace.read_text().count(mark) < count:
            assert process.poll() is None, f"the run ended before it could be killed: {self._said(trace)}"
            assert time.monotonic() < deadline, f"no '{mark}' in ten minutes: {self._said(trace)}"
            time.sleep(0.01)
        time.sleep(self._random.uniform(0, delay))

    def _read(self, aim: str, trace: Path) -> Kill:
        open_places = Counter[str]()
        for line in trace.read_text().splitlines():
            word, _, what = line.partition(" ")
            open_places[what] += 1 if word == "begin" else -1
        inside = sorted(what for what, count in open_places.items() if count > 0 and what != "process")
        folders = [entry.name for entry in (self.run / "checkpoints").glob("*")]
        fell = {place.split()[0] for place in inside} & {"checkpoint", "evaluation"}
        if not any(name.isdecimal() for name in folders):
            fell.add("early")
        left = [name for name in folders if not name.isdecimal()]
        where = f"in {', '.join(inside) or 'none of the places'}; left {', '.join(left) or 'nothing'} half done"
        return Kill(aim, fell, where)

    def finish(self) -> Path:
        """Resume until the end."""
        process, trace = self._start(["resume", str(self.run)])
        assert process.wait(timeout=900) == 0, self._said(trace)
        return self.run

    def counts(self) -> dict[str, int]:
        """How many kills fell where; a kill can fall into two places at once, and all are in `all`."""
        found = Counter(place for kill in self.kills for place in kill.fell)
        return {**{kind: found[kind] for kind in KINDS[:3]}, "all": len(self.kills)}

    def _start(self, words: list[str], slow: dict[str, float] | None = None) -> tuple[subprocess.Popen, Path]:
        self._processes += 1
        trace = self.folder / f"trace-{self._processes}"
        trace.touch()
        environment = os.environ | {"FAULTS_SLOW": json.dumps(slow or {})}
        with (self.folder / f"said-{self._processes}").open("w") as said:
            command = [sys.executable, str(CHILD), str(trace), *words]
            return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment), trace

    def _said(self, trace: Path) -> str:
        return trace.with_name(trace.name.replace("trace", "said")).read_text()


def steady(path: Path) -> str:
    """A CSV file as text without the columns that hold clocks and memory; every other byte as it is."""
    text = path.read_text()
    assert text.endswith("\n"), f"{path}: torn at the end"
    rows = list(csv.reader(text.splitlines()))
    kept = [i for i, name in enumerate(rows[0]) if not any(word in name for word in CLOCKS)]
    assert all(len(row) == len(rows[0]) for row in rows), f"{path}: a row with other columns"
    return "\n".join(",".join(row[i] for i in kept) for row in rows)


def compare(straight: Path, killed: Path) -> dict[str, int]:
    """Fail unless both runs are the same: rows, scores, parameters, optimiser, kept checkpoints. Returns counts."""
    from cta.training.checkpoints import read_manifest

    rows = {}
    for name in ("train.csv", "eval.csv"):
        one, two = steady(straight / name), steady(killed / name)
        assert one == two, f"{name} differs"
        rows[name] = one.count("\n")
    assert any(line.split(",")[-3] != "0" for line in steady(straight / "eval.csv").splitlines()[1:])
    steps = [sorted(int(p.name) for p in (run / "checkpoints").iterdir()) for run in (straight, killed)]
    assert steps[0] == steps[1], f"kept checkpoints differ: {steps}"
    arrays = 0
    for step in steps[0]:
        # The manifest has a checksum of every array as it was in memory; the newest is read back, too.
        one, two = (read_manifest(run / "checkpoints" / str(step)) for run in (straight, killed))
        assert one is not None and two is not None
        differing = [name for name in one["arrays"] if one["arrays"][name] != two["arrays"].get(name)]
        assert one["arrays"].keys() == two["arrays"].keys() and not differing, f"checkpoint {step}: {differing}"
        arrays += len(one["arrays"])
    _compare_arrays(straight, killed, steps[0][-1])
    return {**rows, "checkpoints": len(steps[0]), "arrays": arrays}


def _compare_arrays(straight: Path, killed: Path, step: int) -> None:
    import numpy as np

    from cta.training.checkpoints import Checkpoints

    one, two = (Checkpoints(run / "checkpoints")._read(step, "networks", "training") for run in (straight, killed))
    assert one.keys() == two.keys() and any(name.startswith("optimizer/") for name in one)
    for name in one:
        assert one[name].dtype == two[name].dtype and np.array_equal(one[name], two[name]), name


def campaign(
    folder: Path, wanted: dict[str, int], *, steps: int = 240, seed: int = 0, say: bool = False
) -> tuple[Campaign, dict[str, int]]:
    """Kill until every kind of `wanted` fell as often as asked for; finish; compare."""
    kills = Campaign(folder, steps=steps, seed=seed, say=say)
    later = [kind for kind in KINDS if kind != "early" for _ in range(wanted.get(kind, 0))]
    random.Random(seed).shuffle(later)
    with kills.reference() as straight:
        for kind in ["early"] * wanted.get("early", 0) + later:
            for _ in range(4):
                fell = kills.kill(kind).fell
                if kind == "random" or kind in fell:
                    break
            else:
                raise AssertionError(f"{kind}: not hit in four tries")
        return kills, compare(straight(), kills.finish())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800, help="more kills need more steps to fall into")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wanted = {kind: getattr(arguments, kind) for kind in KINDS}
    kills, same = campaign(arguments.folder, wanted, steps=arguments.steps, seed=arguments.seed, say=True)
    print(f"fell: {kills.counts()}; the same bit for bit: {same}")


if __name__ == "__main__":
    main()
