"""What can be scored, as a person names it; packing it; what the record of a score says of training and scoring."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cta.agents import Networks
from cta.config import to_dict
from cta.errors import CtaError
from cta.experiment import Run, stored_steps
from cta.experiment.weights import SUFFIX, Candidate, Precision, open_weights, pack
from cta.io import provenance
from cta.io.csv_log import CsvLog
from cta.io.files import write_whole
from cta.io.json_files import read_json, write_json
from cta.ooc.pairs import HeldOut
from cta.scores import schema
from cta.scores.paper import TASKS, CellScores
from cta.scores.statistics import LAST_EVALUATIONS
from cta.scores.store import Scores, by_score


def pair_names(held_out: HeldOut | None) -> tuple[str, ...]:
    return TASKS if held_out is None else tuple(f"pair{number}" for number, _ in held_out.numbered())


def candidates(source: Path | Run, step: str = "", seeds: Sequence[int] = ()) -> Iterator[Candidate]:
    """Everything in a file of weights, or checkpoints of a run, at these steps and seeds; a wrong path is told at once.

    `step`: numbers with commas, or of a run the words of `choose_steps`; by default all of a file, the last of a run.
    """
    if isinstance(source, Path) and source.suffix == SUFFIX:
        found, steps = open_weights(source), numbers(step, "--step")
        return (item for item in found if item.step in (steps or [item.step]) and item.seed in (seeds or [item.seed]))
    run = Run(source) if isinstance(source, Path) else source
    return _of_run(run, choose_steps(run, step or "last"), seeds)


def _of_run(run: Run, steps: Sequence[int], seeds: Sequence[int]) -> Iterator[Candidate]:
    for step, networks in chosen_networks(run, steps):
        facts, good = training_facts(run, step), run.good_seeds(step)
        for seed, mine in zip(run.config.seeds, networks, strict=True):
            if seeds and seed not in seeds:
                continue
            if seed in good:
                shown = "float32", facts, lambda mine=mine: mine, run.spec, run.units
                yield Candidate(run.cell, run.agent, seed, step, *shown)
            else:
                text = f"notice: {run.path}: seed {seed} had diverged by step {step:,} and is left out"
                print(text, file=sys.stderr)


def choose_steps(run: Run, choice: str) -> list[int]:
    """Checkpoints that are there: `last`, `last3` (without those that a signal left), `all`, or steps with commas."""
    steps = stored_steps(run)
    planned = [step for step in steps if run.config.planned(step)] or steps
    words = {"last": steps[-1:], "last3": planned[-LAST_EVALUATIONS:], "all": steps}
    if choice in words:
        return words[choice]
    chosen = numbers(choice, "--step", "`last`, `last3`, `all`, or ")
    stored_steps(run, chosen)
    return chosen


def chosen_networks(run: Run, steps: Sequence[int]) -> Iterator[tuple[int, list[Networks]]]:
    """(step, networks of each seed); a checkpoint that a training under way removes meanwhile is left out."""
    gone = []
    for step in steps:
        try:
            _, networks = run.networks(step)
        except CtaError:
            if step in run.steps():
                raise
            print(f"notice: the checkpoint at step {step:,} has gone meanwhile, and is left out", file=sys.stderr)
            gone.append(step)
            continue
        yield step, networks
    if gone and len(gone) == len(steps):
        raise CtaError(f"{run.path}: these checkpoints have all gone meanwhile (the training keeps --keep of them)")


def numbers(text: str, flag: str, words: str = "") -> list[int]:
    """Numbers separated by commas; `words` could have been given instead."""
    try:
        return sorted(int(number) for number in text.replace("_", "").split(",") if number)
    except ValueError as error:
        raise CtaError(f"{flag} {text}: give {words}numbers separated by commas") from error


def keep(item: Candidate, out: Path, precision: Precision, folders: Sequence[Path]) -> None:
    """Write a policy to keep: FILE.safetensors, and FILE.json: where it comes from, and its scores in these folders."""
    content, scores = pack(item, precision), []
    for cell in (Scores(folder).cell(item.key) for folder in folders):
        for (seed, step, asked), (how, seconds) in by_score(cell.record).items():
            mine = [row for row in cell.rows if (row.seed, row.step, row.asked) == (seed, step, asked)]
            if (seed, step) == (item.seed, item.step) and mine:
                more = {"direct": {row.task: row.direct for row in mine}} if asked == schema.PAIRS else {}
                more |= {"asked": asked, "seconds": seconds, **how}
                scores.append({"successes": {row.task: row.successes for row in mine}, **more})
    facts = {"file": out.name, "sha256": sha256(content).hexdigest(), "bytes": len(content), "weights": precision}
    facts |= {**item.key._asdict(), "seed": item.seed, "step": item.step, "scores": scores, "training": item.training}
    write_whole(out, content)
    write_json(out.with_suffix(".json"), facts)


def pack_run(
    run: Run, steps: Sequence[int], *, scores: Scores, episodes: int, precision: Precision = "float32"
) -> list[Path]:
    """Write the weights of the seeds that are not scored at these steps to the results folder."""
    files = []
    for item in candidates(run, ",".join(map(str, sorted(steps)))):
        scored = scores.cell(item.key).scored(episodes=episodes, tasks=pair_names(item.held_out()))
        if (item.seed, item.step) not in scored:
            files.append(scores.weights_file(item.key, item.seed, item.step))
            write_whole(files[-1], pack(item, precision))
    # How far these seeds are trained, so that no other machine trains them again.
    scores.add(run.cell, {"training": [{"seeds": list(run.config.seeds), **training_facts(run, max(steps))}]})
    return files


def training_facts(run: Run, step: int) -> dict[str, Any]:
    """Commit, versions, hardware, kernels, data, settings, clock and command of a run that has come to `step`."""
    seen = run.files.provenance()
    data = seen.get("dataset", {})
    return {
        "steps": step,
        "command": _without_folders(seen.get("command", "")),
        "seeds_together": len(run.config.seeds),
        **{name: seen.get(name) for name in ("commit", "versions", "hardware", "seeding", "kernels", "products")},
        "data": {name: data.get(name) for name in ("fingerprint", "transitions", "provenance")}
        | ({"normalised": True} if data.get("normalised") else {}),
        "settings": to_dict(run.config.agent),
        **_clocks(run, step),
    }


def run_cell(run: Run) -> CellScores:
    """What a run says of its cell: eval.csv, ooc.csv, and who trained it."""
    rows = [*run.evaluations(), *run.evaluations("ooc.csv")]
    steps = max([row.step for row in rows] or run.steps() or [0])
    training = [{"seeds": list(run.config.seeds), **training_facts(run, steps)}]
    latest = {(row.seed, row.step, row.task): row for row in rows}.values()
    return CellScores(run.cell, tuple(sorted(latest, key=schema.order)), {"training": training, "scoring": []})


def _clocks(run: Run, step: int) -> dict[str, float]:
    """Wall-clock seconds, seed-steps per second over all of them, and in the steps alone (median over train.csv)."""
    seeds, found = len(run.config.seeds), {}
    rates = sorted(filter(None, map(_rate, CsvLog(run.path / "train.csv").read())))
    if (run.path / schema.CLOCK).is_file():
        seconds = read_json(run.path / schema.CLOCK).get("wall_clock_s")
        if isinstance(seconds, int | float) and seconds > 0:
            found |= {"wall_clock_s": round(seconds, 1), "seed_steps_per_s": round(seeds * step / seconds, 1)}
    if rates:
        found["seed_steps_per_s_steady"] = round(seeds * rates[len(rates) // 2], 1)
    return found


def _rate(row: dict[str, str]) -> float:
    try:
        return max(0.0, float(row["steps_per_s"]))
    except (KeyError, ValueError):
        return 0.0


def scoring_facts(**how: Any) -> dict[str, Any]:
    made = provenance.record()
    return {**how, **made, "command": _without_folders(made["command"])}


def _without_folders(command: str) -> str:
    """Where files lay on a machine is nobody's business and of no use on another."""
    join = shlex.join
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its other half
        words = []
    if join(words) != command:  # earlier versions wrote words as they are, with spaces between them
        words, join = command.split(" "), " ".join
    return join([Path(word).name if word.startswith(("/", "~")) else word for word in words])
