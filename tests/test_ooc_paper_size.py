"""What the documents say of held-out pairs at the paper's size is what `results/` says."""

from collections import Counter
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from scipy.stats import ttest_ind

from cta.ooc.components import find_layout
from cta.ooc.evaluation import judge, read_logs
from cta.ooc.pairs import held_out_of
from cta.scores.paper import ALL_PAIRS, paper_pairs
from cta.scores.schema import HELD_OUT, CellKey
from cta.scores.store import Scores

ROOT = Path(__file__).parents[1]
README, OOC, REPRODUCTION = (
    " ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/ooc.md", "docs/reproduction.md")
)
OURS = Scores(ROOT / "results")
SCENE, PUZZLE = "scene-play-v0", "puzzle-4x4-play-v0"
PAIRS = {SCENE: ("pair1", "pair2", "pair3"), PUZZLE: ("pair1", "pair2", "pair3", "pair4", "pair5")}
PAPER = {(s.dataset, s.agent, s.pair): s for s in paper_pairs()}
POINTS = {800_000: "800k", 900_000: "900k", 1_000_000: "1M"}
CELLS = [(SCENE, "cta"), (SCENE, "hiql-analogy"), (SCENE, "hiql-dual"), (PUZZLE, "cta"), (PUZZLE, "hiql-analogy")]


def cell(dataset, agent):
    return OURS.cell(CellKey(dataset, agent, condition=HELD_OUT))


def rates(dataset, agent, column, pair=ALL_PAIRS):
    """Of each seed in %, over the three evaluations."""
    found = {}
    for row in cell(dataset, agent).rows:
        if pair in (ALL_PAIRS, row.task):
            found.setdefault(row.seed, []).append(100 * getattr(row, column) / row.episodes)
    return [fmean(values) for _, values in sorted(found.items())]


def spread(dataset, agent, column):
    """As the paper: the mean over pairs of the deviation over seeds."""
    return fmean(pstdev(rates(dataset, agent, column, pair)) for pair in PAIRS[dataset])


def beside_the_paper(dataset, agent):
    return fmean(rates(dataset, agent, "direct")), PAPER[dataset, agent, ALL_PAIRS].direct


def listed(numbers):
    *most, last = (f"{number:.1f}" for number in numbers)
    return f"{', '.join(most)} and {last}"


def difference(dataset, column):
    """CTA less HIQL∨+α∨, with Welch's 95% interval."""
    ours, other = (rates(dataset, agent, column) for agent in ("cta", "hiql-analogy"))
    interval = ttest_ind(ours, other, equal_var=False).confidence_interval(0.95)
    return fmean(ours) - fmean(other), *interval


def section(text, start, end):
    return text.split(start)[1].split(end)[0]


SECTION = {
    SCENE: section(OOC, "### scene-play-v0", "### puzzle-4x4-play-v0"),
    PUZZLE: section(OOC, "### puzzle-4x4-play-v0", "### About these numbers"),
}


@pytest.mark.parametrize("dataset", PAIRS)
def test_the_numbers_of_cta(dataset):
    direct, success = rates(dataset, "cta", "direct"), rates(dataset, "cta", "successes")
    paper = PAPER[dataset, "cta", ALL_PAIRS]
    words = (
        f"direct success {fmean(direct):.1f} ± {spread(dataset, 'cta', 'direct'):.1f} % (paper: {paper.direct:g} ± "
        f"{paper.direct_std:g}), success {fmean(success):.1f} ± {spread(dataset, 'cta', 'successes'):.1f} % "
        f"({paper.success:g} ± {paper.success_std:g})"
    )
    assert words in SECTION[dataset]
    assert f"Its seeds are {listed(direct)}." in SECTION[dataset]


@pytest.mark.parametrize("dataset", PAIRS)
def test_the_numbers_of_the_same_analogies_in_ordinary_networks(dataset):
    direct, success = rates(dataset, "hiql-analogy", "direct"), rates(dataset, "hiql-analogy", "successes")
    paper = PAPER[dataset, "hiql-analogy", ALL_PAIRS]
    text = SECTION[dataset]
    assert f"{fmean(success):.1f} % (paper: {paper.success:g})" in text
    assert f"directly in {fmean(direct):.1f} % ({paper.direct:g})" in text
    assert f"Its seeds are {listed(direct)}" in text
    gap, low, high = difference(dataset, "direct")
    assert f"{gap:.1f} points, 95% interval {low:.1f} to {high:.1f} (Welch, four seeds each)" in text
    above = min(rates(dataset, "cta", "direct")) > max(direct)
    assert ("all below all of CTA's" in text) == above


def test_dual_goals_on_scene():
    direct, success = rates(SCENE, "hiql-dual", "direct"), rates(SCENE, "hiql-dual", "successes")
    paper = PAPER[SCENE, "hiql-dual", ALL_PAIRS]
    assert f"solves {fmean(direct):.1f} % directly ({paper.direct:g}) and {fmean(success):.1f} % in all" in OOC
    assert "Two seeds, {:.1f} and {:.1f}, are too few".format(*direct) in OOC


@pytest.mark.parametrize(("dataset", "agent"), CELLS)
def test_direct_success_can_be_counted_again_from_the_event_logs(dataset, agent):
    held_out = held_out_of(find_layout(dataset), None)
    found, logged = cell(dataset, agent), 0
    old = ROOT / "results" / "ooc" / "events"  # of an earlier version, which kept those of the later seeds only
    for seed in found.seeds:
        for step, point in POINTS.items():
            path = OURS.events_file(found.key, seed, step)
            path = path if path.exists() else old / f"{dataset}.{agent}.seed{seed}.{point}.jsonl.gz"
            if not path.exists():
                continue
            counted = {pair: Counter() for pair in PAIRS[dataset]}
            for log in read_logs(path):
                verdict = judge(log, held_out.pairs[log.pair - 1], held_out.layout)
                counts = {"successes": verdict.success, "direct": verdict.direct, "lenient": verdict.lenient}
                counted[f"pair{log.pair}"].update(counts)
            known = [row for row in found.rows if (row.seed, row.step) == (seed, step)]
            assert len(known) == len(PAIRS[dataset])
            for row in known:
                assert counted[row.task] == {name: getattr(row, name) for name in ("successes", "direct", "lenient")}
            logged += 1
    assert logged == {(SCENE, "cta"): 0, (SCENE, "hiql-analogy"): 6, (SCENE, "hiql-dual"): 6}.get((dataset, agent), 12)


def test_the_pairs_of_scene_in_order():
    found = {pair: fmean(rates(SCENE, "cta", "direct", pair)) for pair in ("pair1", "pair3", "pair2")}
    papers = {pair: PAPER[SCENE, "cta", pair].direct for pair in found}
    assert list(found) == sorted(found, key=found.__getitem__) == sorted(found, key=papers.__getitem__)
    for pair, rate in found.items():
        assert f"{rate:.1f} % ({papers[pair]:g})" in SECTION[SCENE]
    hardest = [row for row in cell(SCENE, "cta").rows if row.task == "pair1" and row.seed == 2]
    assert "seed 2 solved {} of 50 episodes of pair 1 directly at 800k, {} at 900k and {} at 1M".format(
        *(row.direct for row in sorted(hardest, key=lambda row: row.step))
    ) in SECTION[SCENE]  # fmt: skip


def test_the_pairs_of_the_puzzle():
    text = SECTION[PUZZLE]
    gaps = {
        pair: fmean(rates(PUZZLE, "cta", "direct", pair)) - fmean(rates(PUZZLE, "hiql-analogy", "direct", pair))
        for pair in PAIRS[PUZZLE]
    }
    assert max(gaps, key=gaps.__getitem__) == "pair3" and min(gaps, key=gaps.__getitem__) == "pair4"
    assert f"{gaps['pair3']:.1f} points on pair 3" in text and f"{-gaps['pair4']:.1f} behind on pair 4" in text
    gap, low, high = difference(PUZZLE, "lenient")
    assert f"{gap:.1f} points in lenient success, 95% interval {low:.1f} to {high:.1f}" in text
    ours, other = (fmean(rates(PUZZLE, agent, "lenient")) for agent in ("cta", "hiql-analogy"))
    assert f"CTA has {ours:.1f} % and HIQL∨+α∨ {other:.1f} %" in text
    for agent in ("cta", "hiql-analogy"):
        detours = 100 * (1 - fmean(rates(PUZZLE, agent, "direct")) / fmean(rates(PUZZLE, agent, "successes")))
        assert f"{detours:.0f} % of {'CTA' if agent == 'cta' else 'HIQL∨+α∨'}'s successes" in text
    rows = cell(PUZZLE, "cta").rows
    by_step = [fmean(100 * row.direct / row.episodes for row in rows if row.step == step) for step in POINTS]
    assert ", ".join(f"{rate:.1f}" for rate in by_step) in text


@pytest.mark.parametrize("dataset", PAIRS)
def test_the_distance_in_the_reproduction(dataset):
    text = section(REPRODUCTION, "**Held-out pairs**", "**Where paper and code differ**")
    (ours, theirs), (other, others) = (beside_the_paper(dataset, agent) for agent in ("cta", "hiql-analogy"))
    assert f"{ours:.1f} % of them directly ({theirs:g} in the paper)" in text
    assert f"HIQL∨+α∨ {other:.1f} % ({others:g}), a distance of {ours - other:.1f} points ({theirs - others:g})" in text
    gaps = {
        (agent, pair): fmean(rates(dataset, agent, "direct", pair)) - PAPER[dataset, agent, pair].direct
        for agent in ("cta", "hiql-analogy")
        for pair in PAIRS[dataset]
    }
    agent, pair = max(gaps, key=lambda key: abs(gaps[key]))
    name, world = {"cta": "CTA", "hiql-analogy": "HIQL∨+α∨"}[agent], {SCENE: "scene", PUZZLE: "the puzzle"}[dataset]
    widest, papers = fmean(rates(dataset, agent, "direct", pair)), PAPER[dataset, agent, pair].direct
    assert f"{name} on {world}'s pair {pair[-1]}, {widest:.1f} % instead of {papers:g}" in text


@pytest.mark.parametrize("dataset", PAIRS)
def test_the_readme(dataset):
    text = section(README, "<!-- ooc -->", "<!-- /ooc -->")
    (ours, theirs), (other, others) = (beside_the_paper(dataset, agent) for agent in ("cta", "hiql-analogy"))
    assert f"**{ours:.1f} %** (paper: {theirs:g})" in text
    assert f"{other:.1f} % ({others:g})" in text
    gap, low, high = difference(dataset, "direct")
    assert f"{gap:.1f} points, 95% interval {low:.1f} to {high:.1f}" in text


@pytest.mark.parametrize(("dataset", "agent"), CELLS)
def test_the_records_are_of_one_kind_of_data_and_machine(dataset, agent):
    found = cell(dataset, agent)
    for run in found.record["training"]:
        assert run["steps"] == 1_000_000 and run["hardware"]["device"] == "NVIDIA H200"
        assert run["data"]["provenance"]["ooc"]["kind"] == "held-out"
    assert {row.step for row in found.rows} == set(POINTS)
    assert {row.episodes for row in found.rows} == {50}
