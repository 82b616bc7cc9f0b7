"""What docs/reproduction.md says in words about the results is what the results say."""

import csv
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from cta.scores.paper import paper_scores
from cta.scores.schema import CellKey
from cta.scores.statistics import difference
from cta.scores.store import Scores

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "docs" / "reproduction.md").read_text().split())
AGAIN = ROOT / "docs" / "measurements" / "scene-hiql-analogy"
SCENE, PUZZLE = "scene-play-v0", "puzzle-4x4-play-v0"
FIRST_RESULT = 800_000


def rates(results, dataset, agent, by, start=FIRST_RESULT, end=1_000_000):
    """Success in %, in order of the column `by`."""
    found = defaultdict(list)
    for row in results.cell(CellKey(dataset, agent)).rows:
        if start <= row.step <= end:
            found[getattr(row, by)].append(100 * row.successes / row.episodes)
    return {key: fmean(values) for key, values in sorted(found.items())}


OURS = Scores(ROOT / "results")


def score(dataset, agent):
    return fmean(rates(OURS, dataset, agent, "seed").values())


def paper(dataset, agent):
    return next(s.mean for s in paper_scores("main") if (s.dataset, s.agent) == (dataset, agent))


def paragraph(title):
    return TEXT.split(f"**{title}**")[1].split("**")[0]


def test_the_distances_between_the_two_agents():
    for dataset in (PUZZLE, SCENE):
        ours, theirs = (f(dataset, "cta") - f(dataset, "hiql-analogy") for f in (score, paper))
        assert f"{ours:.1f} points ({theirs:g} in the paper)" in TEXT


@pytest.mark.parametrize("dataset", [PUZZLE, SCENE])
@pytest.mark.parametrize(("agent", "name"), [("cta", "CTA"), ("hiql-analogy", "HIQL∨+α∨")])
def test_the_difference_to_the_paper_and_the_seeds(dataset, agent, name):
    text = paragraph(f"{name} on {dataset.removesuffix('-play-v0')}")
    gap = score(dataset, agent) - paper(dataset, agent)
    assert f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'} the paper's mean" in text
    seeds = rates(OURS, dataset, agent, "seed").values()
    assert {f"{min(seeds):.1f}", f"{max(seeds):.1f}"} <= set(re.findall(r"\d+\.\d", text))


def test_the_curve_of_the_baseline_on_puzzle():
    cta, other = (rates(OURS, PUZZLE, agent, "step", start=0) for agent in ("cta", "hiql-analogy"))
    text = paragraph("HIQL∨+α∨ on puzzle-4x4")
    assert f"({other[100_000]:.1f} and {cta[100_000]:.1f} %)" in text
    assert max(other, key=other.__getitem__) == 300_000 and f"300k ({other[300_000]:.1f} %)" in text
    assert f"down to {other[1_000_000]:.1f} % at 1M" in text
    assert f"{max(cta.values()) - max(other.values()):.0f} points instead of 35" in text


def test_the_tasks_of_scene():
    cta, other = (rates(OURS, SCENE, agent, "task") for agent in ("cta", "hiql-analogy"))
    easy = [cta[task] for task in "124"]
    assert f"succeed in {min(easy):.1f} to {max(easy):.1f} % of episodes" in paragraph("CTA on scene")
    assert f"tasks 3 ({cta['3']:.1f} %) and 5 ({cta['5']:.1f} %)" in paragraph("CTA on scene")
    assert f"better at 3 ({other['3']:.1f} %) and worse at 5 ({other['5']:.1f} %)" in paragraph("HIQL∨+α∨ on scene")
    assert other["3"] > cta["3"] and other["5"] < cta["5"]


def test_the_baseline_on_scene_in_its_own_words():
    text = paragraph("HIQL∨+α∨ on scene")
    cta, other = (rates(OURS, SCENE, agent, "step", start=0) for agent in ("cta", "hiql-analogy"))
    assert all(other[step] > cta[step] for step in (50_000, 100_000, 150_000, 200_000))
    assert all(abs(other[step] - cta[step]) < 4 for step in (300_000, 400_000, 500_000))
    *low, _ = seeds = sorted(rates(OURS, SCENE, "hiql-analogy", "seed").values())
    assert "Our seeds are {:.1f}, {:.1f}, {:.1f} and {:.1f}".format(*seeds) in text
    assert f"without the last the mean is {fmean(low):.1f}" in text
    theirs = next(s for s in paper_scores("main") if (s.dataset, s.agent) == (SCENE, "hiql-analogy"))
    ours = fmean(seeds), pstdev(seeds), len(seeds)
    _, (start, end) = difference(ours, (theirs.mean, theirs.std, theirs.seeds))
    assert f"interval −{-start:.1f} to +{end:.1f}" in text


def test_the_policies_that_were_scored_again():
    lines = (
        ("nothing", OURS),
        ("other episodes (`cta evaluate WEIGHTS --eval-seed 1`)", Scores(AGAIN / "other-episodes")),
        ("MuJoCo 4.0.0 instead of 3.3.7", Scores(AGAIN / "mujoco-4.0.0")),
    )
    means, orders = [], set()
    for what, results in lines:
        seeds = rates(results, SCENE, "hiql-analogy", "seed", start=1_000_000)
        orders.add(tuple(sorted(seeds, key=seeds.__getitem__)))
        means.append(fmean(seeds.values()))
        assert f"| {what} | {means[-1]:.1f} | {', '.join(f'{rate:.1f}' for rate in seeds.values())} |" in TEXT
    assert f"move the mean by {means[1] - means[0]:.1f} points, another simulator by {means[2] - means[0]:.1f}" in TEXT
    assert len(orders) == 1
    versions = [
        facts["versions"]["mujoco"]
        for folder in ("other-episodes", "mujoco-4.0.0")
        for facts in json.loads((AGAIN / folder / f"{SCENE}.hiql-analogy.json").read_text())["scoring"]
    ]
    assert set(versions) == {"3.3.7", "4.0.0"}


def test_the_errors_of_proposed_subgoals_are_those_of_the_logs():
    """Of a unit Gaussian in 32 dimensions, −log p = 16·log 2π + half the squared error."""
    names = [f"{split}/high_actor/bc_log_prob" for split in ("training", "validation")]
    lines = []
    for dataset in (PUZZLE, SCENE):
        for agent in ("cta", "hiql-analogy"):
            with (ROOT / "docs" / "measurements" / "policy-likelihood" / f"{dataset}.{agent}.csv").open() as file:
                rows = list(csv.DictReader(file))
            assert {row["seed"] for row in rows} == set("0123") and max(int(row["step"]) for row in rows) == 1_000_000
            errors = [
                fmean(-float(row[name]) for row in rows if start < int(row["step"]) <= end) - 16 * math.log(2 * math.pi)
                for start, end in ((50_000, 100_000), (FIRST_RESULT, 1_000_000))
                for name in names
            ]
            lines.append(f"| {dataset} | {agent} | {' | '.join(f'{error:.2f}' for error in errors)} |")
    assert TEXT.split("<!-- subgoals -->")[1].split("<!-- /subgoals -->")[0].strip().endswith(" ".join(lines))
