"""cta ooc cut, cta ooc rates: what concerns data alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cta.cli.options import DataFolder, Levels, Markdown, NameOrFile, PairsFile
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.io import provenance
from cta.io.json_files import write_json
from cta.io.text_tables import print_table
from cta.ooc.components import Rule, find_layout
from cta.ooc.cut import CutReport, cut_files, find_all
from cta.ooc.pairs import PAPER_EVENTS, HeldOut, held_out_of
from cta.validation import Natural


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which pairs are held out, and when they occur."""

    pairs: PairsFile = None
    threshold: Levels = ()
    """How near to its end a part counts as open or closed."""
    event_threshold: Levels = ()
    """How near to its new end a part's crossing counts as the event."""
    dataset_dir: DataFolder = None

    def held_out(self, dataset: str) -> HeldOut:
        """What the options ask to hold out; thresholds of the command line take the place of the file's."""
        layout = find_layout(Path(dataset).name.removesuffix(".npz"))
        chosen = held_out_of(layout, self.pairs)
        rule = Rule(
            {**chosen.rule.context, **_levels(self.threshold, "--threshold")},
            {**chosen.rule.event, **_levels(self.event_threshold, "--event-threshold")},
        )
        rule.check(layout)
        return HeldOut(layout, chosen.pairs, rule)


def _levels(words: Sequence[str], flag: str) -> dict[str, float]:
    levels = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            levels[name] = float(value)
        except ValueError:
            raise CtaError(f"{flag} {word}: give PART=VALUE, such as window=0.04") from None
    return levels


@dataclass(frozen=True, kw_only=True)
class Cut(Rules):
    """Take every demonstration of held-out pairs out of a dataset.

    Finds the steps that complete a pair's task in its context, removes the K transitions up to each, splits the
    episodes there, and writes an ordinary dataset with the same name and all arrays to DIR. What was removed is
    recorded in the file and in FILE.npz.json beside it. The validation file is cut likewise.

      cta ooc cut desk-play-v0 --out data/cut
      cta ooc cut scene-play-v0 --out data/cut --per-pair
      cta train --dataset data/cut/desk-play-v0.npz
    """

    dataset: NameOrFile
    out: Annotated[Path, arg(metavar="DIR")]
    """Folder for the results; earlier cuts there are replaced, nothing else is."""
    per_pair: bool = False
    """One dataset for each pair, in DIR/pair1, DIR/pair2, …"""
    control: bool = False
    """Remove as many windows of the same lengths at random places instead."""
    seed: Natural = 0
    """Of the random places."""
    env: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: by the file's name)")] = None
    """A dataset name of the world, for files with a name of their own."""

    def __call__(self) -> None:
        options = {"control_seed": self.seed if self.control else None, "dataset_dir": self.dataset_dir}
        wanted = self.held_out(self.env or self.dataset)
        for path, splits in cut_files(self.dataset, self.out, wanted, per_pair=self.per_pair, **options).items():
            for split in sorted(splits):
                print_report(f"{path.stem}, {split}", splits[split], control=self.control)
            if "validation" not in splits:
                print("no validation file beside it: only the training data were cut")
            print(f"wrote {path}")


def print_report(title: str, report: CutReport, *, control: bool) -> None:
    """Events and transitions of a cut, pair by pair."""
    lines = [
        [f"{pair.number} {pair.name}", *(f"{n:,}" for n in (pair.events, pair.nominal, pair.removed, left))]
        for pair, left in zip(report.pairs, report.events_left, strict=True)
    ]
    print_table([("pair", "events", "K · events", "transitions", "events left"), *lines], left=1, title=title)
    print(
        f"removed {report.removed:,} transitions in {report.windows:,} {'random ' if control else ''}windows; "
        f"left {report.transitions_left:,} in {report.episodes_left:,} episodes"
    )
    if report.unexplained:
        print(f"note: {report.unexplained:,} steps change lights in a way that no single press explains")


@dataclass(frozen=True, kw_only=True)
class Rates(Rules):
    """Count the held-out events of datasets, per million transitions, beside the paper's count in the published files.

    cta ooc rates scene-play-v0 puzzle-4x4-play-v0
    cta ooc rates data/scene-play-v0.npz --threshold window=0.04 --event-threshold window=0.16
    """

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|FILE…")]
    """Dataset names in the data folder, or npz files."""
    markdown: Markdown = False
    record: Annotated[Path | None, arg(metavar="FILE")] = None
    """Also write the numbers, with data, versions and commit, to this JSON file (default: none)."""

    def __call__(self) -> None:
        if not self.files:
            raise CtaError("name at least one dataset")
        table: list[list[str]] = [[*RATES]]
        found = []
        for file in self.files:
            wanted = self.held_out(file)
            name, data, _ = open_dataset(file, dataset_dir=self.dataset_dir, info=True)
            counts = [len(events) for events in find_all(data, wanted)]
            published = dict(enumerate(PAPER_EVENTS.get(wanted.layout.name, ()), 1)) if self.pairs is None else {}
            for (number, pair), events in zip(wanted.numbered(), counts, strict=True):
                words = [name.removesuffix("-play-v0"), f"{number} {pair.name}", str(events)]
                table.append([*words, *rate_words(events, data.num_transitions, published.get(number))])
            size = {"episodes": data.num_episodes, "transitions": data.num_transitions, "events": counts}
            found.append({"dataset": name, **size, "fingerprint": data.fingerprint(), "provenance": data.provenance})
        print_table(table, markdown=self.markdown)
        for rates in found:
            print(f"{rates['dataset']}: {rates['episodes']:,} episodes, {rates['transitions']:,} transitions")
        if self.record is not None:
            made = {"command": provenance.command(), "commit": provenance.commit(), "versions": provenance.versions()}
            write_json(self.record, made | {"hardware": provenance.hardware(), "table": table, "rates": found})


RATES = ("dataset", "pair", "events", "per million", "paper")


def rate_words(events: int, transitions: int, paper: int | None) -> tuple[str, str]:
    """Events per million transitions ± √events, and the paper's count with the difference in both errors combined."""
    scale = 1e6 / transitions
    rate, error = events * scale, sqrt(max(events, 1)) * scale
    ours = f"{rate:.0f} ± {error:.0f}"
    if paper is None:
        return ours, "–"
    return ours, f"{paper} ± {sqrt(paper):.0f} ({(rate - paper) / hypot(error, sqrt(paper)):+.1f}σ)"
