"""The `cta` command: one module per subcommand, imported only when it is asked for.

A command is a dataclass `Command`: its docstring and fields are the help and the options, and calling it does the work
and gives the exit code, or None for done. A module of several has them in `COMMANDS`, `train` has a `main` of its own.
"""

import contextlib
import functools
import inspect
import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from types import FrameType
from typing import Any, NoReturn

from cta import __version__, plugins
from cta.compilation import keep_programs
from cta.errors import CtaError, did_you_mean
from cta.exit_codes import DONE, ERROR, INTERRUPTED, USAGE, stop_signals
from cta.io import provenance
from cta.validation import check_bounds

COMMANDS = {
    "demo": "everything on a small world, in minutes, with a page at the end",
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
    "presses": "boards of lights: what can be reached, and how far it is",
    "analogies": "map what an agent takes for the change from state to goal",
    "report": "write one HTML page about runs: curves, tables, map, rollouts",
    "ablate": "train over subgoal steps k, rank b or readings of the paper",
    "completion": "print a script that completes `cta` in bash and zsh",
    "doctor": "show devices, versions, rendering and data folders",
}

ENTRY_POINTS = "cta.commands"
"""Installed packages name modules in this group, each by the name of its command."""
APART = ("theory", "bench")  # commands of packages in this repository that are installed by themselves
HELP = """\
Start here:
  cta train --dataset desk-play-v0              a small world, in minutes
  cta train --dataset scene-play-v0 --seeds 8   the paper's settings
  cta COMMAND --help                            everything a command can do

exit codes: 0 done, 1 error, 2 wrong usage, 3 interrupted and resumable,
            4 a seed diverged (NaN or inf)
"""


def main() -> None:
    """The console script: stop signals are a Ctrl-C, letters that a terminal lacks are spelt out, pipes get lines."""
    for number in stop_signals():
        signal.signal(number, _interrupt)
    sys.unraisablehook = functools.partial(_try_again, sys.unraisablehook)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    keep_programs()
    code = run(sys.argv[1:])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            # What nobody takes any more (a closed pipe, a full disk) is dropped, and the exit code stays what it is.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if "jax" in sys.modules:
        # A thread may still be compiling or computing; an orderly shutdown would destroy JAX under it and crash.
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
    raise _Interrupt(number)


def _try_again(others: Callable[..., Any], lost: "sys.UnraisableHookArgs") -> None:
    """Python drops exceptions in some places, such as while it collects garbage; then the signal comes once more."""
    if isinstance(lost.exc_value, _Interrupt):
        main_thread = threading.main_thread().ident
        threading.Timer(0.01, signal.pthread_kill, (main_thread, lost.exc_value.args[0])).start()
    else:
        others(lost)


def run(argv: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever a user can fix is one line on standard error."""
    if argv and argv[0] in ("--version", "-V", "version"):
        print(f"cta {__version__}")
        return DONE
    name = argv[0] if argv else ""
    try:
        if name not in COMMANDS and name not in (known := commands()):
            if name in APART:
                how = f"from a checkout: pip install --no-deps ./packages/{name}"
                print(f"cta {name}: not installed; {how}", file=sys.stderr)
                return USAGE
            _overview("cta", "Offline goal-conditioned reinforcement learning by analogy.", known, argv, HELP)
        return carry_out(name, argv[1:])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        return DONE
    except KeyboardInterrupt:
        said, code = "interrupted", INTERRUPTED
    except CtaError as error:
        said, code = str(error), ERROR
    except OSError as error:
        said, code = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", ERROR
    except Exception as error:
        said, code = _unforeseen(error), ERROR
    with contextlib.suppress(OSError):  # nobody may listen any more
        print(f"cta {name}: {said}", file=sys.stderr)
    return code


def installed() -> dict[str, metadata.EntryPoint]:
    """Commands of installed packages, which are not imported for that. None takes a name of ours."""
    points = metadata.entry_points(group=ENTRY_POINTS)
    return {point.name: point for point in points if point.name not in (*COMMANDS, "help")}


def commands() -> dict[str, str]:
    """Every command with a line about it: of an installed one, the description of its package."""
    return COMMANDS | {
        name: str(point.dist.metadata.json.get("summary", "")) for name, point in installed().items() if point.dist
    }


def load(name: str) -> Any:
    if name in COMMANDS:
        return import_module(f"cta.cli.{name}")
    point = installed()[name]
    plugins.loaded.append(point.value)
    try:
        module = point.load()
        if not any(hasattr(module, kind) for kind in ("Command", "COMMANDS", "main")):
            raise AttributeError("it has neither Command nor COMMANDS nor main")
    except Exception as error:  # somebody else's code
        said = f"the installed command {point.value} cannot be loaded"
        raise CtaError(f"{said} ({type(error).__name__}: {error})") from error
    return module


def carry_out(name: str, words: Sequence[str]) -> int:
    """Do what a command line asks; returns the exit code. Errors are the caller's."""
    import tyro

    from cta.cli.options import REGISTRY

    module = load(name)
    if hasattr(module, "main"):
        with REGISTRY:
            return module.main(list(words))
    prog, kind = f"cta {name}", getattr(module, "Command", None)
    if kind is None:
        kind = module.COMMANDS.get(words[0]) if words else None
        if kind is None:
            lines = {one: str(inspect.getdoc(command)).splitlines()[0] for one, command in module.COMMANDS.items()}
            _overview(prog, str(inspect.getdoc(module)), lines, words)
        prog, words = f"{prog} {words[0]}", words[1:]
    with REGISTRY:
        command = tyro.cli(kind, args=words, prog=prog, description=inspect.getdoc(kind))
    check_bounds(command)
    return command() or DONE


def _overview(prog: str, about: str, commands: Mapping[str, str], words: Sequence[str], more: str = "") -> NoReturn:
    """Say which commands there are, or that there is none of the name that was typed."""
    if words and words[0] not in ("-h", "--help", "help"):
        hint = did_you_mean(words[0], commands, f"'{prog} --help' lists the commands", form=f"'{prog} {{}}'", most=1)
        print(f"{prog}: there is no command '{words[0]}': {hint}", file=sys.stderr)
        raise SystemExit(USAGE)
    lines = "\n".join(f"  {name:10} {text}" for name, text in commands.items())
    print(f"usage: {prog} COMMAND [options]\n\n{about}\n\ncommands:\n{lines}\n" + (f"\n{more}" if more else ""), end="")
    raise SystemExit(DONE if words else USAGE)


def _unforeseen(error: Exception) -> str:
    """One line for an error nobody foresaw; the traceback goes to a file that a bug report can quote."""
    said = CtaError(f"{type(error).__name__}: {error}"[:300])
    try:
        file, path = tempfile.mkstemp(prefix="cta-error-", suffix=".txt")
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as text:
            text.write(f"cta {__version__}: {provenance.command()}\n\n")
            traceback.print_exception(error, file=text)
    except OSError:
        return f"internal error: {said}"
    return f"internal error: {said}; please report it with the traceback in {path}"
