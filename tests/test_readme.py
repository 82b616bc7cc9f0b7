"""The README keeps its word: its numbers are those of the records, its commands and examples exist and run."""

import ast
import csv
import json
import re
import shlex
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
import tyro

import cta
from cta.agents import paper_names
from cta.cli import carry_out, commands, run
from cta.envs.names import STATE_DIMS
from cta.scores.schema import CellKey, read_scores
from cta.scores.statistics import by_evaluation, seed_scores
from cta.scores.store import Scores

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
RECORDS = ROOT / "docs" / "measurements"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rows(name):
    """Scores of a run: of its training, or of `cta evaluate`."""
    found = [path for path in (RECORDS / name / "eval.csv", RECORDS / name / "evaluate.csv") if path.exists()]
    with found[0].open(newline="") as file:
        return list(csv.DictReader(file))


def section(name):
    return TEXT.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def test_the_desk_score_is_the_record():
    scores = [*seed_scores(read_scores(RECORDS / "desk-play-v0-cta" / "eval.csv")).values()]
    assert len(scores) == 3
    assert f"**{fmean(scores):.1f} ± {pstdev(scores):.1f} %**" in section("desk")


def test_the_puzzle_curve_is_the_results():
    curve = by_evaluation(read_scores(ROOT / "results" / "puzzle-4x4-play-v0.cta.csv"))
    steps = (50_000, 100_000, 150_000, 200_000)
    means = [fmean(curve[seed][step] for seed in range(4)) for step in steps]
    assert f"**{', '.join(f'{mean:.1f}' for mean in means)} %**" in section("puzzle")
    record = json.loads((ROOT / "results" / "puzzle-4x4-play-v0.cta.json").read_text())
    (run,) = record["training"]
    assert run["steps"] == 1_000_000 and run["seeds"] == [0, 1, 2, 3]
    assert f"**{run['wall_clock_s']:.0f} s**" in section("puzzle")


def test_the_kept_policy_is_the_measured_one_and_acts():
    file = ROOT / "pretrained" / "puzzle-4x4-cta.safetensors"
    record = json.loads(file.with_suffix(".json").read_text())
    assert sha256(file.read_bytes()).hexdigest() == record["sha256"] and file.stat().st_size == record["bytes"] < 6e6
    assert f"seed {record['seed']} of the four" in TEXT and f"rounded to {record['weights']}" in TEXT
    scores = {(score["asked"], score["weights"]): score for score in record["scores"]}
    exact, rounded = scores["pairs", "float32"], scores["pairs", "float16"]
    key = CellKey(record["dataset"], record["agent"], condition=record["condition"])
    mine = [r for r in Scores(ROOT / "results").cell(key).rows if (r.seed, r.step) == (record["seed"], record["step"])]
    assert exact["direct"] == {row.task: row.direct for row in mine}
    assert (exact["direct"], exact["successes"]) == (rounded["direct"], rounded["successes"])

    def rate(score, what):
        return f"**{100 * sum(score[what].values()) / (score['episodes'] * len(score[what])):.1f} %**"

    numbers = [rate(rounded, "successes"), rate(rounded, "direct"), rate(scores["tasks", "float16"], "successes")]
    assert re.findall(r"\*\*.*? %\*\*", section("pretrained")) == numbers
    for score, words in ((rounded, "presses: {} on two cores"), (scores["tasks", "float16"], "tasks, {}, and videos")):
        assert score["hardware"]["cores"] == 2 and words.format(f"{score['seconds']:.0f} s") in TEXT
    observations = np.random.default_rng(0).normal(size=(3, STATE_DIMS["puzzle-4x4-v0"])).astype(np.float32)
    actions = cta.load_policy(file)(observations, observations[::-1])
    assert actions.shape == (3, 5) and np.abs(actions).max() <= 1


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
    made = record["dataset"]["provenance"]  # of a LeRobot folder: who wrote it knows the seed
    assert record["dataset"]["fingerprint"] and (made.get("seed") is not None or made["created_by"] == "lerobot")
    config = json.loads((RECORDS / name / "config.json").read_text())
    assert {int(row["seed"]) for row in rows(name)} == set(config["seeds"])


def test_the_table_of_agents_is_the_records(capsys):
    runs = sorted(str(path) for path in (RECORDS / "desk-agents").iterdir())
    assert run(["scores", *runs, "--markdown"]) == 0
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "desk-agents.md").read_text()
    assert {Path(path).name for path in runs} == set(paper_names().values())


def test_it_is_one_page():
    assert len(TEXT.splitlines()) <= 120
    assert all(line.count("|") <= 7 for line in TEXT.splitlines()), "tables of at most six columns"


def test_the_lights_are_the_study():
    """The numbers of README's demo are those of docs/ooc.md, which a test compares with the records."""
    study = (ROOT / "docs/ooc.md").read_text().split("<!-- /lights -->")[1]
    said = re.search(r"CTA − HIQL is \+(\d+), 95% interval \+(\d+) to \+(\d+)", study)
    assert "direct success over all pairs is 78 (CTA)" in study and "67 (HIQL)" in study and said
    lights = " ".join(section("lights").split())
    assert "CTA solves 78 % of the held-out pairs directly, HIQL 67 %" in lights
    gap, low, high = said.groups()
    assert f"difference of {gap} points, 95% interval {low} to {high}" in lights
    assert "CTA − HIQL is +2,\n  interval −4 to +8" in study and "2 points, interval −4 to 8" in lights


def test_targets_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([a-z]+)\b", TEXT)) - {"make"} <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_named_in_text_exist(page):
    assert set(re.findall(r"`cta ([a-z]+)", page.read_text())) <= {*commands(), "version", "help"}


class Parsed(Exception):
    """A command line was understood."""


def typed(page):
    """The command lines of a page's examples."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
    for text in (text for kind, text in blocks if kind != "python"):
        for line in text.replace("\\\n", " ").replace("$agent", "cta").splitlines():
            words = shlex.split(line, comments=True)
            words = words[words.index("--") + 1 :] if "--" in words else words
            if words[:1] == ["cta"]:
                yield words[1 : words.index(">")] if ">" in words else words[1:]


def understood(words, monkeypatch):
    """Read a command line as `cta` would, and stop before anything is done."""
    with monkeypatch.context() as patch:
        parse = tyro.cli

        def parse_and_stop(*options, **more):
            parse(*options, **more)
            raise Parsed

        patch.setattr(tyro, "cli", parse_and_stop)
        try:
            carry_out(words[0], words[1:])
        except Parsed:
            return True
        return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_understood(page, monkeypatch):
    for words in typed(page):
        if "filtered" not in words:  # the agent that docs/new-agent.md writes; test_plugins follows that page
            assert understood(words, monkeypatch), words


def test_a_command_line_with_a_mistake_is_not_understood(monkeypatch):
    for words in (["train", "--stepz", "3"], ["data", "fetch", "x"], ["ooc", "study", "desk", "--sead", "1"]):
        with pytest.raises(SystemExit):
            understood(words, monkeypatch)
    assert sum(1 for page in PAGES for _ in typed(page)) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_parse_and_their_imports_exist(page):
    for code in examples(page):
        tree = ast.parse(code)
        known = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "load"]
        for node in known:
            for alias in node.names:
                assert hasattr(import_module(node.module), alias.name), f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cta":
                assert node.attr in cta.__all__, node.attr


def examples(page):
    """The Python examples of a page, as one would paste them."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


def test_the_examples_of_the_readme_run_when_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    desk, own = examples("README.md")
    names = {}
    exec(desk.replace("steps=2000", "steps=10, log_interval=10, eval_episodes=2"), names)
    assert names["action"].shape == (3,)
    exec(own.replace("20_000", "4"), {})
    assert (tmp_path / "mine.npz").exists()


def test_the_examples_of_other_pages_run_when_pasted(tmp_path, monkeypatch, capsys):
    """The other pages have tests of their own: test_own_data, test_plugins, test_site."""
    monkeypatch.chdir(tmp_path)
    quick = 'agent="gcbc", steps=4, eval_episodes=1, run_dir="run"'
    names = ("api", "report", "theory", "pixels")
    (api,), (report,), (theory,), (pixels,) = (examples(f"docs/{name}.md") for name in names)
    exec(api.replace("steps=2000", quick), {})
    exec(report.replace("runs/desk-play-v0/cta-20260101-120000", "run"), {})
    assert "page/index.html" in capsys.readouterr().out
    exec(theory, {})
    assert "Invariance(within=0.0" in capsys.readouterr().out
    exec(pixels, {})
    assert (tmp_path / "frames.png").stat().st_size > 1000


def test_every_page_with_python_examples_is_run_by_a_test():
    known = {"README.md", *(f"{name}.md" for name in ("api", "report", "theory", "pixels", "own-data"))}
    known |= {"new-agent.md", "new-world.md"}
    assert {page.name for page in PAGES if examples(page)} == known
