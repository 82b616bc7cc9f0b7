"""A run for the fault tests: `python faults_child.py TRACE WORDS…` is `cta WORDS…`, observed and in slow motion.

TRACE is a file to which the process writes what it is doing, so that a test can say where a kill fell. The environment
variable FAULTS_SLOW is a JSON object {place: seconds}: how long to linger at each of the places below. Nothing in the
package knows about this.
"""

import json
import os
import sys
import time
from typing import Any

SLOW: dict[str, float] = json.loads(os.environ.get("FAULTS_SLOW", "{}"))
TRACE = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def trace(text: str) -> None:
    """One line, in one write."""
    os.write(TRACE, f"{text}\n".encode())


def watch(home: Any, name: str, place: str, label: Any = None) -> None:
    """Note when `home.name` begins and ends, and linger before it."""
    original = getattr(home, name)

    def watched(*args: Any, **options: Any) -> Any:
        what = f"{place} {label(*args) if label else ''}".strip()
        trace(f"begin {what}")
        time.sleep(SLOW.get(place, 0.0))
        try:
            return original(*args, **options)
        finally:
            trace(f"end {what}")

    setattr(home, name, watched)


def main() -> None:
    """Watch the places where a kill could hurt, then run the command."""
    trace("begin process")
    from cta import cli
    from cta.experiment import background, trainer
    from cta.io.csv_log import CsvLog
    from cta.training import checkpoints
    from cta.training.seeds import SeedGroup

    watch(checkpoints.Checkpoints, "_write", "checkpoint", lambda self, step, state: step)
    watch(checkpoints, "_write_arrays", "arrays")
    watch(checkpoints, "write_whole", "manifest")
    watch(checkpoints, "_sync", "renamed")
    watch(checkpoints.Checkpoints, "prune", "prune")
    watch(checkpoints.shutil, "rmtree", "delete")
    watch(background, "score_rows", "evaluation", lambda evaluator, agent, networks, units, config, step, *_: step)
    watch(CsvLog, "append", "rows", lambda self, rows: self.path.name)
    watch(SeedGroup, "run", "block", lambda self, count: self.step)
    watch(trainer, "open_data", "data")
    sys.argv[:] = ["cta", *sys.argv[2:]]
    cli.main()


if __name__ == "__main__":
    main()
