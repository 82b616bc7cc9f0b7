"""Options that several commands share, and how the help of all of them says a default: once."""

import re
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import tyro
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from cta.errors import CtaError
from cta.validation import Bounds, Count

if TYPE_CHECKING:
    from cta.experiment import Run

NameOrFile = Annotated[Positional[str], arg(metavar="NAME|FILE", help="A dataset name in the data folder, or a file.")]
DATA = "The data folder (default: OGBENCH_DATA_DIR, else ~/.ogbench/data)."
DataFolder = Annotated[str | None, arg(metavar="DIR", help=DATA)]
Workers = Annotated[Count | None, arg(metavar="N", help="Processes that step the simulator (default: one per core).")]
Markdown = Annotated[bool, arg(help="Print Markdown.")]
SOME_RUNS = Bounds("name at least one run directory", bool)
RunFolders = Annotated[Positional[tuple[Path, ...]], SOME_RUNS, arg(metavar="RUN…", help="Run directories.")]
Seeds = Annotated[str, arg(help="A count (4 means 0…3), a list (0,3,5), or one alone (`3,`).")]
Engine = Annotated[Literal["local", "ray"], arg(help="Where jobs run, as in `cta reproduce`.")]
WORK = "Folder of runs, shared by all plans (default: runs/grid)."
WorkFolder = Annotated[Path | None, arg(metavar="DIR", help=WORK)]
Checkpoints = Annotated[str, arg(help="Checkpoints: `last`, `last3`, `all`, or steps separated by commas.")]
OWN_PAIRS = "A TOML file of pairs of your own, see docs/ooc.md (default: the world's)."
PairsFile = Annotated[Path | None, arg(metavar="FILE", help=OWN_PAIRS)]
Levels = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="PART=VALUE")]
MOST_SEEDS = 1024
WEIGHTS = ".safetensors"  # the end of the name of a file of weights


@dataclass(frozen=True, kw_only=True)
class Opening:
    agent: Annotated[str | None, arg(metavar="MODULE:CLASS")] = None
    """The agent, if that is code of your own."""
    unverified: bool = False
    """Use checkpoints that have no manifest of checksums, of an old version of cta, as they are."""

    def open_run(self, path: str | Path) -> "Run":
        from cta.experiment import Run

        return Run(path, agent=self.agent, unverified=self.unverified)


@dataclass(frozen=True, kw_only=True)
class OpenedRun(Opening):
    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory."""


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_seeds(text: str, *, alone: bool = False) -> tuple[int, ...]:
    """`8` → 0…7 (a single seed if `alone`); `0,3,5` → those; `3,` → 3 alone."""
    if not re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        raise CtaError(f"--seeds {text}: give a count (8), a list (0,3,5) or one seed with a comma (3,)")
    numbers = tuple(int(number) for number in text.split(",") if number)
    if "," in text or alone:
        return numbers
    if numbers[0] == 0:
        raise CtaError("--seeds 0: a count of at least 1, or `0,` for seed 0 alone")
    if numbers[0] > MOST_SEEDS:
        raise CtaError(f"--seeds {text}: at most {MOST_SEEDS} train together; one seed of this number is `{text},`")
    return tuple(range(numbers[0]))


SAID = re.compile(r"\s*(\(default: [^)]*\))")  # how a docstring says what happens without an option
KINDS = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}
REGISTRY = ConstructorRegistry()  # tyro's rules and ours: `with REGISTRY:` around a command
_inside: list[Any] = []


@REGISTRY.struct_rule
def say_defaults_once(info: StructTypeInfo) -> StructConstructorSpec | None:
    """tyro's own rule for a dataclass, with the words of docstrings in the place of `(default: None)`."""
    if info.type in _inside or not is_dataclass(info.type):
        return None
    _inside.append(info.type)
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _inside.remove(info.type)
    if not isinstance(spec, StructConstructorSpec):
        return None
    return replace(spec, fields=tuple(map(_field, spec.fields)))


def _field(field: StructFieldSpec) -> StructFieldSpec:
    if field.default not in (None, "", (), tyro.MISSING, tyro.MISSING_NONPROP):
        return field

    def text() -> str:
        return (field.helptext() if callable(field.helptext) else field.helptext) or ""

    kind, *more = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    plain = [get_args(part)[0] if get_origin(part) is Annotated else part for part in get_args(kind)]
    (named,) = {KINDS.get(part) for part in plain} - {None} or {None}
    metavar = named if type(None) in get_args(kind) else None
    ours = arg(help_behavior_hint=lambda _: "".join(SAID.findall(text())), metavar=metavar)
    return replace(field, type=Annotated[(kind, ours, *more)], helptext=lambda: SAID.sub("", text()))
