"""The `cta` command: one module a subcommand, imported only when it is asked for."""

import contextlib
import difflib
import io
import os
import signal
import sys
import threading
from importlib import import_module
from types import FrameType
from typing import TextIO

from cta import __version__
from cta.compilation import keep_programs
from cta.errors import CtaError
from cta.stopping import DONE, ERROR, INTERRUPTED, SEED_STOPPED, USAGE, asking

COMMANDS = {
    "demo": "everything on a small world, in minutes, ending with a page to look at",
    "train": "train an agent on a dataset and score it on the way",
    "resume": "continue a run that stopped",
    "evaluate": "score a run's checkpoints in the simulator, record videos",
    "export": "write a policy that needs neither the run nor this package",
    "scores": "compare the scores of several runs",
    "reproduce": "carry out a plan: generate, train and score, within a budget",
    "results": "collect and list score files, keep the weights of runs",
    "table": "the paper's tables with ours beside them",
    "data": "generate, download, list and inspect datasets",
    "agents": "list the agents",
    "ooc": "hold out pairs of context and task, train, and ask for them",
    "theory": "check the paper's theory on small exact worlds",
    "bench": "measure speed and memory on this machine",
    "analogies": "map what an agent takes for the change between state and goal, with numbers",
    "report": "write one HTML page about runs: curves, tables, analogy map, rollouts",
    "ablate": "train over subgoal steps k, rank b or readings of the paper, with curves and bars",
    "doctor": "show devices, versions, rendering and data folders",
}

HELP = f"""\
usage: cta COMMAND [options]

Offline goal-conditioned reinforcement learning by analogy.

commands:
{chr(10).join(f"  {name:10} {text}" for name, text in COMMANDS.items())}

Start here:
  cta train --dataset desk-play-v0                          a small world, minutes on a laptop
  cta train --dataset scene-play-v0 --agent cta --seeds 8   the paper's settings
  cta COMMAND --help                                        everything a command can do

exit codes: 0 done, 1 error, 2 wrong usage, 3 interrupted and resumable, 4 a seed's numbers went bad
"""

__all__ = ["DONE", "ERROR", "INTERRUPTED", "SEED_STOPPED", "USAGE", "main", "run"]


def main() -> None:
    """Entry point of the console script. Every signal that asks is a Ctrl-C; letters a terminal lacks are spelt out."""
    for number in asking():
        signal.signal(number, _interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    keep_programs()
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    if any(thread.name == "evaluation" for thread in threading.enumerate()):
        # An evaluation nobody waits for is inside compiled code, where an orderly shutdown would abort.
        os._exit(code)
    sys.exit(code)


class _Interrupt(KeyboardInterrupt):
    """Python may end a process by SIGINT although its KeyboardInterrupt was caught, but not for one that is derived."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ask the command to end; at once while modules are loaded, where exceptions are lost or turned into others."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"cta: interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise _Interrupt


def _flush(stream: TextIO | None) -> None:
    """What nobody takes any more (a closed pipe, a full disk) is dropped, so that the exit code stays what it is."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(argv: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever a user can fix is one line on standard error."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return DONE if argv else USAGE
    if argv[0] in ("--version", "-V", "version"):
        print(f"cta {__version__}")
        return DONE
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean 'cta {close[0]}'?" if close else "'cta --help' lists the commands"
        print(f"cta: there is no command '{name}': {hint}", file=sys.stderr)
        return USAGE
    try:
        return import_module(f"cta.cli.{name}").main(rest)
    except CtaError as error:
        _complain(f"cta {name}: {error}")
        return ERROR
    except KeyboardInterrupt:
        _complain(f"cta {name}: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"cta {name}: {where}{error.strerror or error}")
        return ERROR
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may listen any more
        print(text, file=sys.stderr)
