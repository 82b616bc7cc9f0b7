"""The README keeps its word: its numbers are those of the records, its commands and examples exist and run."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from cta.agents import REGISTRY
from cta.cli import COMMANDS, run
from cta.envs.names import STATE_DIMS
from cta.evaluation import overall_success, seed_scores

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
RECORDS = ROOT / "docs" / "measurements"


def rows(name):
    with (RECORDS / name / "eval.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def section(name):
    return TEXT.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def test_the_desk_score_is_the_record():
    scores = [100 * score for score in seed_scores(rows("desk-play-v0-cta")).values()]
    assert len(scores) == 3
    assert f"**{fmean(scores):.1f} ± {pstdev(scores):.1f} %**" in section("desk")


def test_the_puzzle_curve_is_the_results():
    with (ROOT / "results" / "puzzle-4x4-play-v0.cta.csv").open(newline="") as file:
        curve = overall_success(list(csv.DictReader(file)))
    steps = (50_000, 100_000, 150_000, 200_000)
    means = [100 * fmean(curve[seed, step] for seed in range(4)) for step in steps]
    assert f"**{', '.join(f'{mean:.1f}' for mean in means)} %**" in section("puzzle")
    record = json.loads((ROOT / "results" / "puzzle-4x4-play-v0.cta.json").read_text())
    (run,) = record["training"]
    assert run["steps"] == 1_000_000 and run["seeds"] == [0, 1, 2, 3]
    assert f"**{run['wall_clock_s']:.0f} s**" in section("puzzle")


def test_the_speeds_are_the_records():
    def entry(name, what):
        record = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())
        assert record["device"] == "NVIDIA H200" and record["commit"]
        found = next(entry for entry in record["entries"] if entry["what"] == what)
        assert found["batch_size"] == 256 and found["dataset"] == "random 1000000x83, 5 actions"
        return found

    one, eight = (entry(f"train-h200-{name}", "train") for name in ("1-seed", "8-seeds"))
    assert one["parameters"] == eight["parameters"] == 5_594_057 and min(one["seconds"], eight["seconds"]) >= 20
    assert f"**{one['steps_per_s']:,.0f} steps/s** with one seed" in section("speed")
    assert f"**{eight['seed_steps_per_s']:,.0f} seed-steps/s** with eight" in section("speed")
    assert f"takes {entry('train-h200-8-seeds', 'reference')['steps_per_s']:.0f} " in section("speed")
    assert f"[{entry('start-h200-8-seeds', 'compile')['warm_start_s']:.1f} s]" in section("speed")
    simulated = json.loads((ROOT / "benchmarks" / "simulate-generate-evaluate-cpu.json").read_text())["entries"]
    ratios = [entry["ratio"] for entry in simulated if entry["what"] == "simulate" and entry["env"] in STATE_DIMS]
    assert len(ratios) == 8 and f"[{min(ratios):.2f} to {max(ratios):.2f} times]" in section("speed")


@pytest.mark.parametrize("name", sorted(str(p.parent.relative_to(RECORDS)) for p in RECORDS.rglob("provenance.json")))
def test_records_say_where_they_come_from(name):
    record = json.loads((RECORDS / name / "provenance.json").read_text())
    assert record["command"].startswith("cta train")
    assert record["commit"] and record["hardware"]["device"] and record["versions"]["jax"]
    assert record["dataset"]["fingerprint"] and record["dataset"]["provenance"]["seed"] is not None
    config = json.loads((RECORDS / name / "config.json").read_text())
    assert {int(row["seed"]) for row in rows(name)} == set(config["seeds"])


def test_the_table_of_agents_is_the_records(capsys):
    runs = sorted(str(path) for path in (RECORDS / "desk-agents").iterdir())
    assert run(["scores", *runs, "--markdown"]) == 0
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "desk-agents.md").read_text()
    assert {Path(path).name for path in runs} == set(REGISTRY)


def test_commands_and_targets_exist():
    named = set(re.findall(r"^cta (\w+)", TEXT, re.M)) | set(re.findall(r"`cta (\w+)", TEXT))
    assert named <= set(COMMANDS)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([a-z]+)\b", TEXT)) - {"make"} <= set(targets)


def test_links_resolve():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_python_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    desk, own = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    names = {"observation": np.zeros(8, np.float32), "goal": np.ones(8, np.float32)}
    exec(desk.replace("steps=2000", "steps=10, log_interval=10, eval_episodes=2"), names)
    assert names["action"].shape == (3,)
    names = {
        "observations": generator.normal(size=(620, 4)).astype(np.float32),
        "actions": generator.uniform(-1, 1, size=(620, 2)).astype(np.float32),
    }
    exec(own.replace("50_000", "4"), names)
    assert (tmp_path / "mine.npz").exists()
