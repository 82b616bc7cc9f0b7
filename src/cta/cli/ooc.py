"""Hold pairs of context and task out of the data, train, and ask for them."""

from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cta.cli import options
from cta.cli.evaluate import episode_bar
from cta.envs.datasets import open_dataset
from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.io import provenance
from cta.io.files import check_writable
from cta.io.json_files import write_json
from cta.io.text_tables import print_table
from cta.ooc.components import Rule, find_layout
from cta.ooc.cut import CutReport, cut_files, find_all
from cta.ooc.pairs import PAPER_EVENTS, HeldOut, held_out_of
from cta.validation import Bounds, Natural

RATES = ("dataset", "pair", "events", "per million", "paper")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which pairs are held out, and when they occur."""

    pairs: options.PairsFile = None
    threshold: options.Levels = ()
    """How near to its end a part counts as open or closed; may be repeated (default: half)."""
    event_threshold: options.Levels = ()
    """How near to its new end a part's crossing counts as the event; may be repeated (default: half)."""
    dataset_dir: options.DataFolder = None

    def held_out(self, dataset: str) -> HeldOut:
        """What the options ask to hold out; thresholds of the command line take the place of the file's."""
        layout = find_layout(Path(dataset).name.removesuffix(".npz"))
        chosen = held_out_of(layout, self.pairs)
        context, event = {**chosen.rule.context}, {**chosen.rule.event}
        given = ("--threshold", self.threshold, context), ("--event-threshold", self.event_threshold, event)
        for flag, words, levels in given:
            for word in words:
                name, _, value = word.partition("=")
                try:
                    levels[name] = float(value)
                except ValueError:
                    raise CtaError(f"{flag} {word}: give PART=VALUE, such as window=0.04") from None
        rule = Rule(context, event)
        rule.check(layout)
        return HeldOut(layout, chosen.pairs, rule)


@dataclass(frozen=True, kw_only=True)
class Cut(Rules):
    """Take every demonstration of held-out pairs out of a dataset.

    Removes the K transitions up to each step that completes a pair's task in its context, splits the episodes there,
    and writes a dataset of the same name and arrays to DIR, with a record of what was removed; validation data, too.

      cta ooc cut desk-play-v0 --out data/cut
      cta ooc cut scene-play-v0 --out data/cut --per-pair
      cta train --dataset data/cut/desk-play-v0.npz
    """

    dataset: options.NameOrFile
    out: Annotated[Path, arg(metavar="DIR")]
    """Folder for the results; earlier cuts there are replaced, nothing else is."""
    per_pair: bool = False
    """One dataset for each pair, in DIR/pair1, DIR/pair2, …"""
    control: bool = False
    """Remove as many windows of the same lengths at random places instead."""
    seed: Natural = 0
    """Of the random places."""
    env: Annotated[str | None, arg(metavar="NAME")] = None
    """A dataset name of the world, for files with a name of their own (default: by the file's name)."""

    def __call__(self) -> None:
        wanted = self.held_out(self.env or self.dataset)
        how = {"per_pair": self.per_pair, "control_seed": self.seed if self.control else None}
        for path, splits in cut_files(self.dataset, self.out, wanted, dataset_dir=self.dataset_dir, **how).items():
            for split in sorted(splits):
                self._print(f"{path.stem}, {split}", splits[split])
            if "validation" not in splits:
                print("no validation file beside it: only the training data were cut")
            print(f"wrote {path}")

    def _print(self, title: str, report: CutReport) -> None:
        rows = [["pair", "events", "K · events", "transitions", "events left"]]
        for pair, left in zip(report.pairs, report.events_left, strict=True):
            counts = pair.events, pair.nominal, pair.removed, left
            rows.append([f"{pair.number} {pair.name}", *(f"{count:,}" for count in counts)])
        print_table(rows, left=1, title=title)
        removed = f"{report.removed:,} transitions in {report.windows:,} {'random ' * self.control}windows"
        print(f"removed {removed}; left {report.transitions_left:,} in {report.episodes_left:,} episodes")
        if report.unexplained:
            print(f"note: {report.unexplained:,} steps change lights in a way that no single press explains")


@dataclass(frozen=True, kw_only=True)
class Evaluate(options.OpenedRun):
    """Ask a run's agents for held-out pairs: success, and direct success, strict and lenient.

    The pairs are those that were cut out of the run's data, or the world's own. Starts and goals are the same for every
    method, seed and step. Direct means that the task itself was carried out: strictly, that nothing else changed on the
    way; leniently, that its last completion happened in the pair's context. Event logs: RUN/ooc; counts: RUN/ooc.csv.

      cta ooc evaluate RUN --step last3
    """

    step: options.Checkpoints = "last"
    episodes: int = 50
    """Episodes per pair."""
    pairs: options.PairsFile = None
    eval_seed: int = 0
    """Seed of the lists of starts and goals."""
    workers: options.Workers = None
    markdown: options.Markdown = False

    def __call__(self) -> None:
        from cta.experiment.candidates import candidates
        from cta.experiment.run_dir import cut_of
        from cta.experiment.score_files import How, Players, ask_run, table_name
        from cta.experiment.weights import held_out_pairs
        from cta.scores.pair_table import as_table, pair_lines

        run = self.open_run(self.run)
        check_writable(run.path)
        cut = cut_of(run.files.provenance().get("dataset") or {})
        wanted = held_out_pairs(run.config.dataset_name, cut, self.pairs)
        name = table_name(wanted, held_out_pairs(run.config.dataset_name, cut), self.pairs)
        noise = run.config.eval_temperature, run.config.eval_gaussian
        how, items = How(self.episodes, self.eval_seed, self.workers, *noise), candidates(run, self.step)
        run.tell_simulator()
        with episode_bar() as progress, Players(how, progress) as players:
            rows = ask_run(run, items, wanted, players, name)
        if not rows:
            raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to ask")
        print_pairs(wanted)
        print_table(as_table(pair_lines(rows)), title="direct success (success), %", markdown=self.markdown)
        print(f"rows: {run.path / name}.csv, event logs: {run.path / name}")


def print_pairs(held_out: HeldOut, indent: str = "") -> None:
    for number, pair in held_out.numbered():
        print(f"{indent}pair{number}: {pair.describe(held_out.layout)}")


@dataclass(frozen=True, kw_only=True)
class Study(Rules):
    """Cut the pairs out, train, ask, and print the table beside the paper's.

    As with `cta reproduce`, runs lie in the work folder of all plans, scores and their records in DIR/results, and the
    same command continues; agents, controls, seeds and steps may be added later.

      cta ooc study desk --agents cta,hiql-analogy --controls uncut,random
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """A dataset name (scene-play-v0), its world (scene, desk), or an npz file."""
    agents: str = "cta,hiql-analogy,hiql-dual,gciql-dual,hiql"
    """Separated by commas."""
    seeds: options.Seeds = "4"
    steps: int | None = None
    """Optimiser steps (default: the paper's)."""
    controls: str = ""
    """Also train on uncut data (`uncut`), with as many random windows cut (`random`), or both (default: neither)."""
    per_pair: bool = False
    """One training for each pair, on data without that pair alone."""
    episodes: int = 50
    """Episodes per pair."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the scores (default: runs/ooc/DATASET)."""
    work: options.WorkFolder = None
    engine: options.Engine = "local"
    workers: options.Workers = None
    markdown: options.Markdown = False

    def __call__(self) -> int:
        from cta.grid import How
        from cta.grid.run_plan import run_plan
        from cta.grid.studies import study_plan
        from cta.scores.pair_table import as_table, pair_lines, paper_lines
        from cta.scores.store import Scores

        dataset = self.env if self.env in KNOWN or f"{self.env}-play-v0" not in KNOWN else f"{self.env}-play-v0"
        flags = () if self.pairs is None else ("--pairs", str(self.pairs.expanduser().absolute()))
        flags += tuple(word for level in self.threshold for word in ("--threshold", level))
        flags += tuple(word for level in self.event_threshold for word in ("--event-threshold", level))
        held_out, seeds = self.held_out(dataset), options.parse_seeds(self.seeds)
        size = {"seeds": seeds, "steps": self.steps, "episodes": self.episodes, "per_pair": self.per_pair}
        lists = {"agents": options.words(self.agents), "controls": options.words(self.controls), "flags": flags}
        plan = study_plan(dataset, held_out, **lists, **size)
        folder = (self.out or Path("runs") / "ooc" / Path(dataset).name.removesuffix(".npz")).expanduser()
        shared = {"work": self.work, "dataset_dir": self.dataset_dir, "engine": self.engine, "workers": self.workers}
        code = run_plan(plan, How(out=folder / "results", **shared))
        print_pairs(held_out)
        scores = Scores(folder / "results")
        ours = pair_lines(row for cell in plan.cells for row in scores.cell(cell.key).rows if cell.wants(row))
        table = as_table(ours, [] if flags else paper_lines(dataset))
        print_table(table, title="direct success (success), %", markdown=self.markdown)
        return code


@dataclass(frozen=True, kw_only=True)
class Rates(Rules):
    """Count the held-out events of datasets, per million transitions, beside the paper's count in the published files.

    ± is √events; σ is the difference in both errors combined.

      cta ooc rates data/scene-play-v0.npz --threshold window=0.04 --event-threshold window=0.16
    """

    files: Annotated[Positional[tuple[str, ...]], Bounds("name at least one dataset", bool), arg(metavar="NAME|FILE…")]
    """Dataset names in the data folder, or npz files."""
    markdown: options.Markdown = False
    record: Annotated[Path | None, arg(metavar="FILE")] = None
    """Also write the numbers, with data, versions and commit, to this JSON file (default: none)."""

    def __call__(self) -> None:
        table, found = [[*RATES]], []
        for file in self.files:
            wanted = self.held_out(file)
            name, data, _ = open_dataset(file, dataset_dir=self.dataset_dir, info=True)
            counts = [len(events) for events in find_all(data, wanted)]
            published = dict(enumerate(PAPER_EVENTS.get(wanted.layout.name, ()), 1)) if self.pairs is None else {}
            for (number, pair), events in zip(wanted.numbered(), counts, strict=True):
                rate, error = (1e6 * count / data.num_transitions for count in (events, sqrt(max(events, 1))))
                words = [name.removesuffix("-play-v0"), f"{number} {pair.name}", str(events)]
                table.append([*words, f"{rate:.0f} ± {error:.0f}", "–"])
                if paper := published.get(number):
                    apart = (rate - paper) / hypot(error, sqrt(paper))
                    table[-1][-1] = f"{paper} ± {sqrt(paper):.0f} ({apart:+.1f}σ)"
            size = {"episodes": data.num_episodes, "transitions": data.num_transitions, "events": counts}
            found.append({"dataset": name, **size, "fingerprint": data.fingerprint(), "provenance": data.provenance})
        print_table(table, markdown=self.markdown)
        for rates in found:
            print(f"{rates['dataset']}: {rates['episodes']:,} episodes, {rates['transitions']:,} transitions")
        if self.record is not None:
            write_json(self.record, {**provenance.record(), "table": table, "rates": found})


COMMANDS = {"cut": Cut, "evaluate": Evaluate, "study": Study, "rates": Rates}
