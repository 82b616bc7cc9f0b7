"""The numbers in docs/ooc.md about the study on the lights, and about what makes it differ from the desk's."""

import json
import re
from pathlib import Path
from statistics import fmean, pstdev, stdev

import numpy as np
import pytest

from cta.cli.demo import Command
from cta.envs.desk_play import generate_play
from cta.io.text_tables import pipe_table as markdown
from cta.ooc import Rule, find_layout, held_out_of
from cta.scores.pair_table import PairAnswer, as_table, pair_lines
from cta.scores.schema import Score, read_scores
from cta.scores.statistics import by_evaluation, difference, seed_scores

MEASUREMENTS = Path(__file__).parents[1] / "docs" / "measurements"
LIGHTS, DESK = MEASUREMENTS / "ooc-lights", MEASUREMENTS / "ooc-desk"
RAW = (MEASUREMENTS.parent / "ooc.md").read_text()
PAGE = " ".join(RAW.split())
NAMES = {"cta": "CTA", "hiql-analogy": "HIQL∨+α∨", "hiql-dual": "HIQL∨", "hiql": "HIQL", "gciql-dual": "GCIQL∨"}
TWO_LEVEL = [agent for agent in NAMES if agent != "gciql-dual"]
KINDS = ("held-out", "uncut", "random")


def scores(kind: str, agent: str) -> list[Score]:
    return read_scores(LIGHTS / kind / f"lights-3x3-play-v0.{agent}.csv")


def direct(kind: str, agent: str) -> list[float]:
    return [*seed_scores(scores(kind, agent), "direct").values()]


def block(name: str) -> str:
    (body,) = re.findall(f"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", RAW, re.DOTALL)
    return body


def gap(kind: str, other: str) -> tuple[str, str]:
    """CTA − other with its interval, as the page writes it."""
    ours, theirs = ((fmean(found), pstdev(found), len(found)) for found in (direct(kind, "cta"), direct(kind, other)))
    found, interval = difference(ours, theirs)
    assert interval is not None
    return f"{found:+.0f}", " to ".join(f"{end:+.0f}".replace("-", "−") for end in interval)


def test_the_table_is_the_records():
    files = [file for kind in KINDS for file in sorted((LIGHTS / kind).glob("*.csv"))]
    lines = [line for file in files for line in pair_lines(read_scores(file))]
    assert block("lights") == markdown(as_table(lines)) and len(lines) == 15
    for kind in KINDS:
        for agent in NAMES:
            rows = scores(kind, agent)
            assert {row.step for row in rows} == {4_800, 5_400, 6_000} and {row.episodes for row in rows} == {50}
            record = json.loads((LIGHTS / kind / f"lights-3x3-play-v0.{agent}.json").read_text())
            assert {seed for run in record["training"] for seed in run["seeds"]} == set(range(8))
            assert all({"command", "commit", "versions", "hardware", "data"} <= set(run) for run in record["training"])


def test_what_is_said_of_the_order_is_the_records():
    rates = [f"{fmean(direct('held-out', agent)):.0f} ({NAMES[agent]})" for agent in TWO_LEVEL]
    assert f"{', '.join(rates[:3])} and {rates[3]}." in PAGE
    for other, words in (
        ("hiql", "CTA − HIQL is {}, 95% interval {} (Welch"),
        ("hiql-dual", "CTA − HIQL∨ {}, interval {}."),
        ("hiql-analogy", "CTA − HIQL∨+α∨ is {}, interval {}:"),
    ):
        assert words.format(*gap("held-out", other)) in PAGE
    assert "CTA − HIQL is {}, interval {}.".format(*gap("random", "hiql")) in PAGE
    means = sorted(fmean(direct("random", agent)) for agent in TWO_LEVEL)
    assert f"the four are alike ({means[0]:.0f} to {means[-1]:.0f})" in PAGE


@pytest.mark.parametrize("agent", NAMES)
def test_what_is_said_of_the_loss_is_the_records(agent):
    lost = [other - cut for cut, other in zip(direct("held-out", agent), direct("random", agent), strict=True)]
    said = f"{fmean(lost):.0f} ± {stdev(lost) / 8**0.5:.0f} ({NAMES[agent]})"
    assert said in PAGE.split("## The study on the lights")[1]


def test_what_is_said_of_half_the_steps_is_the_records():
    found = [by_evaluation(scores("earlier", agent), "direct") for agent in ("cta", "hiql")]
    early = [fmean(at[3_000] for at in by_seed.values()) for by_seed in found]
    assert "were level, {:.0f} and {:.0f} (".format(*early) in PAGE


def test_what_is_said_of_the_demo_is_what_it_says_of_these_seeds():
    count = int(Command().seeds)
    assert f"with the first {('four', 'five', 'six')[count - 4]} of these seeds" in PAGE and Command().steps == 6_000
    rows = {name: scores("held-out", agent) for name, agent in (("CTA", "cta"), ("HIQL", "hiql"))}
    answer = PairAnswer({name: [row for row in found if row.seed < count] for name, found in rows.items()})
    assert answer.interval is not None and answer.told
    low, high = answer.interval
    assert f"a difference of {answer.gap:.0f} points, interval {low:+.1f} to {high:+.1f}," in PAGE


def test_what_is_said_of_the_cut_is_the_record_s():
    record = json.loads((LIGHTS / "held-out" / "lights-3x3-play-v0.cta.json").read_text())
    report = record["training"][0]["data"]["provenance"]["ooc"]["report"]
    gone, left = report["removed"], report["transitions_left"]
    assert f"{gone:,} of {gone + left:,} transitions" in PAGE


def test_the_table_of_both_worlds_is_the_records():
    files = [MEASUREMENTS / f"{name}-analogies" / "purity.json" for name in ("desk", "lights")]
    found = [json.loads(file.read_text())["purity"] for file in files]
    for line in block("worlds").splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        what, _, network = name.partition(", ")
        for cell, rows in zip(cells, found, strict=True):
            (row,) = (r for r in rows if (r["representation"], r["network"]) == (what, network or "none"))
            spread = f" ± {row['purity_across_contexts_sd']}" if "purity_across_contexts_sd" in row else ""
            assert cell == f"{row['purity_across_contexts_%']}{spread}"


def test_what_is_said_of_contexts_and_events_is_so():
    said = {"desk": "visit {} discrete states, with {:.0f} events", "lights-3x3": "lights' {}, with {:.0f}."}
    for name, words in said.items():
        data, _ = generate_play(name)
        layout = find_layout(data.name)
        values = Rule().values(layout, layout.measure(data.observations, dict(data.info)))
        changed = (values[1:] != values[:-1]).any(axis=1) & ~np.asarray(data.terminals, bool)[:-1]
        contexts = len(np.unique(values, axis=0))
        assert words.format(contexts, changed.sum() / contexts) in PAGE


def test_contexts_of_the_lights_are_what_the_press_flips_and_those_of_the_bystanders_are_not():
    layout = find_layout("lights-3x3-play-v0")
    own, other = held_out_of(layout), held_out_of(layout, LIGHTS / "bystanders" / "bystanders.toml")
    for mine, theirs in zip(own.pairs, other.pairs, strict=True):
        flipped = {layout.names[light] for light in layout.patterns[mine.event[1]]}
        assert set(mine.context) == flipped and not set(theirs.context) & flipped and mine.event == theirs.event
        assert len(theirs.context) == min(4, len(mine.context))
    rates = fmean(direct("bystanders", "hiql")), fmean(direct("uncut", "hiql"))
    assert "HIQL loses nothing: {:.0f} on these pairs, {:.0f} on whole data".format(*rates) in PAGE


def test_what_is_said_of_detours_is_the_records():
    desk = read_scores(DESK / "held-out" / "desk-play-v0.cta.csv", condition="held-out")
    first = [row for row in desk if row.task == "pair1"]
    groups = desk, first, scores("held-out", "cta")
    shares = [1 - sum(row.direct or 0 for row in rows) / sum(row.successes for row in rows) for rows in groups]
    words = "{:.0f} % of CTA's successes are not direct, {:.0f} % on pair 1; on the lights {:.0f} %."
    assert words.format(*(100 * share for share in shares)) in PAGE
