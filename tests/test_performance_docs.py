"""The numbers in docs/performance.md are those of the records."""

import csv
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import fmean, stdev

import pytest

from cta.envs.names import STATE_DIMS
from cta.fast.kernels import WORK, Work
from cta.scores.schema import read_scores
from cta.scores.statistics import by_evaluation

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "performance.md").read_text()
KERNELS = ROOT / "docs" / "measurements" / "desk-kernels"


def block(name: str) -> str:
    (body,) = re.findall(f"<!-- {name} -->(.*?)<!-- /{name} -->", PAGE, re.DOTALL)
    return body.strip()


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def success(*paths: Path) -> dict[int, dict[int, float]]:
    """Percent, by step and seed."""
    found: dict[int, dict[int, float]] = {}
    for seed, by_step in by_evaluation([score for path in paths for score in read_scores(path)]).items():
        for step, rate in by_step.items():
            found.setdefault(step, {})[seed] = rate
    return found


def on_the_gpu(kernels: str, name: str) -> list[Path]:
    return [KERNELS / f"h200-{kernels}-{part}" / name for part in "ab"]


def tenths(mean: float) -> Decimal:
    """One decimal, halves away from zero: a mean of 7.15 reads 7.2 in whatever order it was summed."""
    return Decimal(repr(round(mean, 9))).quantize(Decimal("0.1"), ROUND_HALF_UP)


def test_the_kernels_learn_alike_on_the_desk():
    plain, fused = (success(*on_the_gpu(kernels, "eval.csv")) for kernels in ("plain", "fused"))
    lines = ["| steps | plain, % | fused, % | fused − plain |", "|---|---|---|---|"]
    for step in sorted(plain):
        a, b = ([found[step][seed] for seed in range(32)] for found in (plain, fused))
        change = [y - x for x, y in zip(a, b, strict=True)]
        error = stdev(change) / len(change) ** 0.5
        assert abs(fmean(change)) < 2 * error
        cells = [f"{step:,}", *(f"{tenths(fmean(x))} ± {stdev(x):.1f}" for x in (a, b))]
        lines.append(f"| {' | '.join(cells)} | {tenths(fmean(change)):+} ± {error:.1f} |".replace("-", "−"))
    assert block("desk-kernels").splitlines()[2:] == lines[2:]


@pytest.mark.parametrize(
    ("metric", "bound"),
    [("dual/critic_loss", 0.001), ("dual/value_loss", 0.001), ("value/value_loss", 0.009)]
    + [(f"{actor}/actor_loss", 0.002) for actor in ("low_actor", "high_actor")],
)
def test_the_kernels_have_the_same_losses_on_the_desk(metric, bound):
    plain, fused = (
        fmean(
            float(row[f"training/{metric}"])
            for path in on_the_gpu(kernels, "train.csv")
            for row in read(path)
            if row["step"] == "3000"
        )
        for kernels in ("plain", "fused")
    )
    assert abs(fused / plain - 1) < bound


def test_the_curve_of_the_fast_path_is_the_results():
    curve = success(ROOT / "results" / "puzzle-4x4-play-v0.cta.csv")
    means = [fmean(curve[step].values()) for step in (50_000, 100_000, 150_000, 200_000)]
    assert all(len(curve[step]) == 4 for step in (50_000, 100_000, 150_000, 200_000))
    assert block("puzzle-fused") == ", ".join(f"{mean:.1f}" for mean in means) + " %"
    assert fmean(means) >= 52 and means[-1] >= 65
    run = json.loads((ROOT / "results" / "puzzle-4x4-play-v0.cta.json").read_text())["training"][0]
    assert f"{run['seed_steps_per_s_steady']:,.0f} seed-steps/s, or {run['seed_steps_per_s']:,.0f} from start" in PAGE


def entries(name: str, what: str) -> list[dict]:
    return [e for e in json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())["entries"] if e["what"] == what]


def test_the_profile_and_the_phases_are_the_records():
    kinds = {
        "products": "matmul",
        "bias, GELU, norm, the bilinear layer, sums": "layer norm, elementwise, reduction",
        "Adam, targets, copies of weights": "optimiser",
        "concatenations, gathers, copies": "copies",
    }
    found = [entries(name, "profile") for name in ("profile-h200-8-seeds-plain", "train-h200-8-seeds-phases")]
    for label, kind in kinds.items():
        times = [next(e["ms_per_step"] for e in profile if e["kind"] == kind) for profile in found]
        assert f"| {label} | {times[0]:.2f} | {times[1]:.2f} |" in PAGE
    totals = [sum(e["ms_per_step"] for e in profile) for profile in found]
    kernels = [sum(e["kernels_per_step"] for e in profile) for profile in found]
    assert f"| all | {totals[0]:.2f} | {totals[1]:.2f} |" in PAGE
    assert f"| kernels | {kernels[0]:,.0f} | {kernels[1]:,.0f} |" in PAGE


def test_starts_and_rates_are_the_records():
    names = ("train-h200-8-seeds", "train-h200-8-seeds-phases", "train-h200-1-seed")
    names += ("start-h200-8-seeds", "start-h200-1-seed")
    rates, starts, memory = ([entries(name, what)[0] for name in names] for what in ("train", "compile", "memory"))

    def row(numbers):
        return " | ".join(numbers) + " |"

    assert "seed-steps/s | " + row(f"{rate['seed_steps_per_s']:,.0f}" for rate in rates) in PAGE
    assert "a run, steps/s | " + row(f"{rate['steps_per_s']:,.0f}" for rate in rates) in PAGE
    assert "cold, s | " + row(f"{start['cold_start_s']:.1f}" for start in starts) in PAGE
    assert "second start, s | " + row(f"{start['warm_start_s']:.1f}" for start in starts) in PAGE
    phases = [", ".join(f"{s[f'warm_{name}_s']:.1f}" for name in ("trace", "lower", "compile")) for s in starts[1:]]
    assert "cache, s | | " + row(phases) in PAGE
    assert "data, GiB | " + row(f"{found['device_beside_data_bytes'] / 2**30:.2f}" for found in memory) in PAGE
    assert max(start["warm_start_s"] for start in starts[3:]) < 5
    (slow,) = entries("start-cpu", "compile")
    assert f"{slow['cold_start_s']:.1f} s cold and {slow['warm_start_s']:.1f} s warm" in PAGE
    assert (
        "this {:.1f}, {:.1f} and {:.1f} s of".format(*(slow[f"warm_{n}_s"] for n in ("trace", "lower", "compile")))
        in PAGE
    )


def test_memory_is_the_records():
    (memory,) = entries("memory-h200", "memory")
    assert memory["seeds"] == 8 and memory["dataset"] == "random 5000000x115, 5 actions"
    assert f"{memory['device_beside_data_bytes'] / 2**30:.2f} GiB of device" in PAGE


def test_the_table_of_simulation_is_the_records():
    ratios = {entry["env"]: entry["ratio"] for entry in entries("simulate-generate-evaluate-cpu", "simulate")}
    lines = [f"| {world} | {ratios[world]:.2f} |" for world in (*STATE_DIMS, "geometric mean")]
    assert block("simulation").splitlines()[2:] == lines
    assert min(ratios.values()) >= 1.3 and ratios["geometric mean"] >= 1.5


def test_the_kernels_were_tested_on_a_gpu():
    """What is said of it is the record's, and the record's is the output's."""
    folder = ROOT / "docs" / "measurements" / "h200-equivalence"
    record, output = json.loads((folder / "record.json").read_text()), (folder / "output.txt").read_text()
    fast, kept = record["test_fast"], record["test_kept_programs"]
    assert record["hardware"]["device"] == "NVIDIA H200" and fast["failed"] == kept["failed"] == 0
    assert f"they pass, {fast['passed']} of 25, and {kept['passed']} of 11 of [kept programs]" in " ".join(PAGE.split())
    assert len(re.findall(r"test_fast.py::\S+ PASSED", output)) == fast["passed"]
    assert len(re.findall(r"test_kept_programs.py::\S+ PASSED", output)) == kept["passed"]
    assert not re.findall(r"FAILED|ERROR|SKIPPED", output)


def test_pixel_rates_on_a_cpu_are_the_records():
    names = ("pixels-cpu-before", "pixels-cpu")
    before, after = ({e["agent"]: e["seed_steps_per_s"] for e in entries(name, "train")} for name in names)
    assert block("pixels").splitlines()[2:] == [
        f"| {agent} | {before[agent]:.2f} | {after[agent]:.2f} |" for agent in before
    ]
    assert min(after[agent] / before[agent] for agent in before) > 10


PIXELS = ROOT / "docs" / "measurements" / "pixels-h200"
PIXELS_PAGE = (ROOT / "docs" / "pixels.md").read_text()


def pixel_block(name):
    return PIXELS_PAGE.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0].splitlines()


def test_pixel_scores_are_the_records():
    lines = pixel_block("pixel-scores")
    steps = [int(step.replace(",", "")) for step in re.findall(r"[\d,]+", lines[0])]
    for agent, line in zip(("gcivl", "hiql-dual", "cta"), lines[2:], strict=True):
        scores = success(PIXELS / f"visual-lights-3x3-play-v0.{agent}.csv")
        found = {step: f"{tenths(fmean(x.values()))} ± {stdev(x.values()):.1f}" for step, x in scores.items()}
        assert set(found) <= set(steps)
        assert line == f"| {agent} | {' | '.join(found.get(step, '–') for step in steps)} |"


def test_what_is_said_of_the_dual_losses_on_images_is_in_the_logs():
    found = {}
    for what in ("images", "states"):
        with (PIXELS / "train" / f"cta-{what}.csv").open() as file:
            for row in csv.DictReader(file):
                losses = [float(row[f"training/dual/{name}_loss"]) for name in ("value", "critic")]
                found.setdefault((what, int(row["step"])), []).append(losses)
    for line in pixel_block("pixel-dual")[2:]:
        what, step, value, critic = line.strip("| ").split(" | ")
        seeds = found[what, int(step.replace(",", ""))]
        assert value == ", ".join(f"{loss:.3f}" for loss, _ in seeds)
        assert critic == ", ".join(f"{loss:.1f}" for _, loss in seeds)


def test_a_critic_that_cannot_tell_images_apart_has_the_loss_of_a_constant():
    with (PIXELS / "train" / "cta-images.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["training/dual/value_loss"]) < 0.01]
    assert [(row["seed"], row["step"]) for row in rows] == [*zip("01212", ["2000"] * 3 + ["4000"] * 2, strict=True)]
    for row in rows:
        value, loss = (float(row[f"training/dual/{name}"]) for name in ("value_mean", "critic_loss"))
        near = 0.06 if row["step"] == "2000" else 0.02  # means over 2,000 steps, in the first of which the value falls
        assert loss == pytest.approx(2 * 0.2 * 0.8 * (1 - 0.95 * value) ** 2, rel=near)


def test_pixel_rates_are_the_records():
    records = [PIXELS / f"visual-lights-3x3-play-v0.{agent}.json" for agent in ("gcivl", "hiql-dual", "cta")]
    records.append(ROOT / "results" / "puzzle-4x4-play-v0.cta.held-out.json")
    lines = pixel_block("pixel-rates")[2:]
    for path, line in zip(records, lines, strict=True):
        run = json.loads(path.read_text())["training"][0]
        assert run["seeds_together"] == 4 and run["hardware"]["device"] == "NVIDIA H200"
        assert f"batch {run['settings']['batch_size']}, H200 | {run['kernels']}, {run['products']} |" in line
        assert line.endswith(f" | {run['seed_steps_per_s_steady']:,} |")


def test_what_is_said_of_the_kernels_trial_is_its_record():
    trial = json.loads((ROOT / "benchmarks" / "kernels-trial-h200.json").read_text())["lines"]
    micro = {(line["what"], line["seeds"], *line["work"]): line["us"] for line in trial if "work" in line}
    for name, now in WORK.items():
        cells = [str(tenths(micro[name, seeds, *work])) for seeds in (8, 1) for work in (Work(), now)]
        assert f"| {name} | {' | '.join(cells)} |" in PAGE
    steps = [line for line in trial if line["what"] == "step" and line["t"] < 103]
    for variant, said in (("off", "5,879 and 5,883"), ("on", "5,137 and 5,166"), ("on, best rows and tile", "5,775")):
        found = [line["seed_steps_per_s"] for line in steps if (line["variant"], line["seeds"]) == (variant, 8)]
        assert " and ".join(f"{rate:,.0f}" for rate in found[:2]) == said and said in PAGE


def test_every_agent_was_compared_on_a_gpu():
    folder = ROOT / "docs" / "measurements" / "h200-all-agents"
    record, output = json.loads((folder / "record.json").read_text()), (folder / "output.txt").read_text()
    assert f"{record['passed']} passed, {record['skipped']} skipped" in output and "failed" not in output
    assert f"pass, {record['passed']} of {record['passed']}" in PAGE
