"""One case in a process of its own: peaks of memory are the case's, and what is compiled is compiled afresh.

`python -m cta.bench.child` reads a request as JSON from standard input and prints its entries as the last line.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cta.bench.cases import Case
from cta.errors import CtaError

Entry = dict[str, Any]


def measure_case(case: Case, *, also: Sequence[str] = ()) -> Iterator[tuple[list[Entry], dict[str, Any]]]:
    """Entries of a case's own program as they come, and the hardware they were measured on.

    `also`: `parts` (sampler and update alone), `profile`, `reference` (in turns with the plain loop, in one process).
    """
    with tempfile.TemporaryDirectory(prefix="cta-bench-xla-") as cache:

        def ask(what: str) -> tuple[list[Entry], dict[str, Any]]:
            return _ask(case, what, cache)

        entries, hardware = ask("train")
        again = ask("start")[0][0]
        compiled = next(entry for entry in entries if entry["what"] == "compile")
        cold = {f"cold_{name}": compiled.pop(name) for name in again}
        compiled |= cold | {f"warm_{name}": value for name, value in again.items()}
        yield entries, hardware
        for what in also:
            yield ask(what)


def measure_only(case: Case, what: str) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of one kind, with the user's compilation cache."""
    return _ask(case, what, None)


def _ask(case: Case, what: str, cache: str | None) -> tuple[list[Entry], dict[str, Any]]:
    # The package may stand on PYTHONPATH only, and the folder we were started from must not hide it.
    folder = str(Path(__file__).parents[2])
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = cache
    with _started(environment) as process:
        output, _ = process.communicate(json.dumps({"case": case.to_json(), "do": what}))
    if process.returncode:
        reason = output.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise CtaError(f"measuring {case.agent} failed: {reason[0]}")
    found = json.loads(output.splitlines()[-1])
    return found["entries"], found["hardware"]


@contextmanager
def _started(environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    call = [sys.executable, "-m", "cta.bench.child"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(call, env=environment, **pipes)
    try:
        yield process
    finally:
        if process.poll() is None:  # an interruption: do not leave it training
            process.kill()
            process.wait()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What the child computes."""
    from cta.compilation import enable_cache, keep_programs
    from cta.provenance import hardware

    enable_cache()
    keep_programs()
    case = Case.from_json(request["case"])
    dataset = case.data.open()
    return {"entries": _measure(request["do"], case, dataset), "hardware": hardware()}


def _measure(what: str, case: Case, dataset: Any) -> list[Entry]:
    from cta.bench import train

    if what == "start":
        return [train.measure_start(case, dataset)]
    if what == "parts":
        return train.measure_parts(case, dataset)
    if what == "reference":
        from cta.bench.reference import measure_reference

        return measure_reference(case, dataset)
    if what == "profile":
        from cta.bench.profile import measure_profile

        return measure_profile(case, dataset)
    if what == "beside":
        from cta.bench.beside import measure_beside

        return measure_beside(case, dataset)
    return train.measure_training(case, dataset)


def main() -> int:
    """Entry point of the child process."""
    try:
        print(json.dumps(answer(json.loads(sys.stdin.read()))))
    except CtaError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
