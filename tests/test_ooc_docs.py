"""The numbers in docs/ooc.md are those of the records beside it."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from cta.cli.ooc import RATES as COLUMNS
from cta.io.csv_log import CsvLog
from cta.io.text_tables import pipe_table as markdown
from cta.ooc.pairs import PAPER_EVENTS
from cta.scores.pair_table import as_table, pair_lines
from cta.scores.paper import ALL_PAIRS, paper_pairs
from cta.scores.schema import WHOLE, read_scores

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "ooc.md").read_text()
RATES = json.loads((DOCS / "measurements" / "ooc-rates" / "record.json").read_text())
DESK, LONGER = (DOCS / "measurements" / name for name in ("ooc-desk", "ooc-desk-longer"))
COUNTED = ("direct", "successes")
AGENTS = ("cta", "hiql-analogy", "hiql-dual", "gciql-dual", "hiql")
HELD_OUT, CONTROLS = "held-out", ("uncut", "random")


def block(name: str) -> str:
    (body,) = re.findall(f"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE, re.DOTALL)
    return body


def test_the_table_of_rates_is_the_records():
    places = [RATES["table"][0].index(column) for column in COLUMNS]
    assert block("rates") == markdown([[row[place] for place in places] for row in RATES["table"]])
    assert {"command", "commit", "versions", "hardware"} <= set(RATES)


def test_measured_rates_are_compatible():
    """At least 200 episodes of scene and 100 of the puzzle; every rate within three combined errors of the paper's."""
    scene, puzzle = RATES["rates"]
    assert scene["dataset"] == "scene-play-v0" and scene["episodes"] >= 200
    assert puzzle["dataset"] == "puzzle-4x4-play-v0" and puzzle["episodes"] >= 100 and puzzle["unexplained"] == 0
    for found, layout in ((scene, "scene"), (puzzle, "puzzle-4x4")):
        for pair, count in zip(found["pairs"], PAPER_EVENTS[layout], strict=True):
            ours = pair["events"] * 1e6 / found["transitions"]
            assert pair["rate"] == pytest.approx(ours) and pair["error"] == pytest.approx(ours / pair["events"] ** 0.5)
            assert abs(ours - count) < 3 * (pair["error"] ** 2 + count) ** 0.5


SAID = [
    ("Pair 2 has {} events", "2 close the window", "drawer within 0.08, window event at 0.1"),
    ("at most {} if it must be within 4 cm\n  ({σ} errors away)", "2 close the window", "drawer within 0.04"),
    ("at most {} within 2 cm ({σ}). So the paper's rule for the drawer", "2 close the window", "drawer within 0.02"),
    ("Pair 1 has {} events", "1 open the drawer", "window within 0.1, drawer event at 0.08"),
    ("at most {} within 4 cm ({σ})", "1 open the drawer", "window within 0.04"),
    ("at most {} within 2 cm ({σ}). So 2 cm is unlikely for the window", "1 open the drawer", "window within 0.02"),
    (
        "Pair 3 has {} events with both in the middle (paper: 74; {σ} errors)",
        "3 put",
        "drawer within 0.08, window within 0.1",
    ),
    (", {} with the window within 4 cm ({σ})", "3 put", "drawer within 0.08, window within 0.04"),
]


@pytest.mark.parametrize(("words", "pair", "rule"), SAID)
def test_what_is_said_of_other_rules_is_the_records(words, pair, rule):
    lines = [x for x in RATES["search"] if x["pair"].startswith(pair) and x["rule"].startswith(rule)]
    most = max(lines, key=lambda line: int(line["events"]))
    assert words.format(most["events"], σ=most["σ"].lstrip("+-")) in PAGE


def test_the_table_of_the_desk_is_the_records():
    ours = []
    for kind in (HELD_OUT, *CONTROLS):
        condition = WHOLE if kind == "uncut" else kind
        paths = sorted((DESK / kind).glob("*.csv"))
        ours += pair_lines(row for path in paths for row in read_scores(path, condition=condition))
    assert {line.agent for line in ours if line.data == HELD_OUT} == set(AGENTS)
    assert {(agent, kind) for agent in AGENTS[:2] for kind in CONTROLS} <= {(line.agent, line.data) for line in ours}
    assert block("desk") == markdown(as_table(ours))
    assert {line.seeds for line in ours} == {8}
    for path in DESK.glob("*/*.csv"):
        record = json.loads(path.with_suffix(".json").read_text())
        assert all({"command", "commit", "versions", "hardware", "dataset"} <= set(run) for run in record["training"])


def rates(folder: Path, agent: str, column: str, pair: str = "") -> list[float]:
    """In per cent, over all pairs or of one, for each seed."""
    found: dict[int, list[float]] = {}
    for row in CsvLog(folder / f"desk-play-v0.{agent}.csv").read():
        if pair in ("", row["pair"]):
            found.setdefault(int(row["seed"]), []).append(100 * int(row[column]) / int(row["episodes"]))
    return [fmean(values) for _, values in sorted(found.items())]


def direct(kind: str, agent: str) -> list[float]:
    return rates(DESK / kind, agent, "direct")


NAMES = {"cta": "CTA", "hiql-analogy": "HIQL∨+α∨", "hiql": "HIQL", "hiql-dual": "HIQL∨", "gciql-dual": "GCIQL∨"}


@pytest.mark.parametrize("agent", NAMES)
def test_what_is_said_of_the_loss_is_the_records(agent):
    differences = [
        with_cut - other for with_cut, other in zip(direct(HELD_OUT, agent), direct("random", agent), strict=True)
    ]
    error = stdev(differences) / len(differences) ** 0.5
    assert f"{-fmean(differences):.0f} ± {error:.0f} ({NAMES[agent]})" in PAGE


def test_what_is_said_of_the_difference_is_the_records():
    ours, other = direct(HELD_OUT, "cta"), direct(HELD_OUT, "hiql-dual")
    error = ((stdev(ours) ** 2 + stdev(other) ** 2) / len(ours)) ** 0.5
    difference = fmean(ours) - fmean(other)
    assert f"CTA − HIQL∨ is −{-difference:.0f} with a standard error of {error:.0f}." in PAGE
    at = {agent: f"{fmean(direct(HELD_OUT, agent)):.0f}" for agent in NAMES}
    assert f"are at {at['cta']} and {at['hiql-analogy']}, HIQL∨ and HIQL" in PAGE
    assert f"which see the goal, at {at['hiql-dual']} and {at['hiql']}." in PAGE
    assert f"between {min(ours):.0f} and {max(ours):.0f}; the first of them is at {ours[0]:.0f}." in PAGE
    paper = {(s.dataset, s.agent): s.direct for s in paper_pairs() if s.pair == ALL_PAIRS}
    for dataset, words in (("scene-play-v0", "on scene"), ("puzzle-4x4-play-v0", "on puzzle-4x4")):
        assert f"{words} ({paper[dataset, 'cta']:.0f} against {paper[dataset, 'hiql-dual']:.0f})" in PAGE


def test_what_is_said_of_whole_data_is_the_records():
    two_level = [agent for agent in NAMES if agent != "gciql-dual"]
    for kind, words in (("uncut", "are alike** ({} to {})"), ("random", "little ({} to {})")):
        means = sorted(fmean(direct(kind, agent)) for agent in two_level)
        assert words.format(f"{means[0]:.0f}", f"{means[-1]:.0f}") in PAGE


def test_what_is_said_of_longer_training_is_the_records():
    lines, folders = block("longer").splitlines()[2:], (DESK / HELD_OUT, LONGER / HELD_OUT)
    for line, agent in zip(lines, ("cta", "hiql-analogy", "hiql-dual"), strict=True):
        found = [rates(folder, agent, column) for column in COUNTED for folder in folders]
        assert {len(seeds) for seeds in found} == {8}
        cells = [f"{fmean(seeds):.0f} ± {stdev(seeds) / 8**0.5:.0f}" for seeds in found]
        assert line == f"| {agent} | {' | '.join(cells)} |"
    order = ("cta", "hiql-analogy", "hiql-dual")
    firsts = {column: [fmean(rates(folders[1], agent, column, "pair1")) for agent in order] for column in COUNTED}
    text = " ".join(PAGE.split())
    assert "({:.0f} %, {:.0f} % and {:.0f} %)".format(*firsts["direct"]) in text
    assert "in {:.0f}, {:.0f} and {:.0f} % of episodes".format(*firsts["successes"]) in text
    for path in (LONGER / HELD_OUT).glob("*.json"):
        (run,) = json.loads(path.read_text())["training"]
        assert run["steps"] == 20_000 and {"command", "commit", "versions", "hardware"} <= set(run)
