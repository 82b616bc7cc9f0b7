"""The numbers in docs/ooc.md are those of the records beside it."""

import json
import re
from pathlib import Path

import pytest

from cta.ooc.rates import EARLIER, HEADER, PAPER
from cta.ooc.study import AGENTS, CONTROLS, HELD_OUT
from cta.ooc.table import as_table, markdown, merge, summarise
from cta.training.logs import CsvLog

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "ooc.md").read_text()
RATES = json.loads((DOCS / "measurements" / "ooc-rates" / "record.json").read_text())
DESK = DOCS / "measurements" / "ooc-desk"


def block(name: str) -> str:
    (body,) = re.findall(f"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE, re.DOTALL)
    return body


def test_the_table_of_rates_is_the_records():
    assert block("rates") == markdown(RATES["table"]) and RATES["table"][0] == list(HEADER)
    assert {"command", "commit", "versions", "hardware"} <= set(RATES)


def test_measured_rates_are_compatible():
    """At least 200 episodes of scene and 100 of the puzzle; every rate within three combined errors of every other."""
    scene, puzzle = RATES["rates"]
    assert scene["dataset"] == "scene-play-v0" and scene["episodes"] >= 200
    assert puzzle["dataset"] == "puzzle-4x4-play-v0" and puzzle["episodes"] >= 100 and puzzle["unexplained"] == 0
    for found, layout in ((scene, "scene"), (puzzle, "puzzle-4x4")):
        for pair, (rate, error), count in zip(found["pairs"], EARLIER[layout], PAPER[layout], strict=True):
            assert (pair["earlier"]["rate"], pair["earlier"]["error"], pair["paper"]["rate"]) == (rate, error, count)
            ours = pair["events"] * 1e6 / found["transitions"]
            assert pair["rate"] == pytest.approx(ours) and pair["error"] == pytest.approx(ours / pair["events"] ** 0.5)
            combined = (pair["error"] ** 2 + error**2) ** 0.5
            assert pair["earlier"]["sigmas"] == pytest.approx((ours - rate) / combined)
            for other in ("earlier", "paper", "independent"):
                assert pair[other] is None or abs(pair[other]["sigmas"]) < 3


SAID = [
    ("Pair 2 has {} events", "2 close the window", "drawer within 0.08, window event at 0.1"),
    ("at most {} if it must be within 4 cm\n  ({σ} errors away)", "2 close the window", "drawer within 0.04"),
    ("at most {} within 2 cm ({σ}). So for the drawer", "2 close the window", "drawer within 0.02"),
    ("Pair 1 has {} events", "1 open the drawer", "window within 0.1, drawer event at 0.08"),
    ("at most {} within 4 cm ({σ})", "1 open the drawer", "window within 0.04"),
    ("at most {} within 2 cm ({σ}). So for the window", "1 open the drawer", "window within 0.02"),
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
        rows = [row for path in sorted((DESK / kind).glob("*.csv")) for row in CsvLog(path).read()]
        ours += summarise(rows, data=kind) if rows else []
    assert {line.agent for line in ours if line.data == HELD_OUT} == set(AGENTS)
    assert {(agent, kind) for agent in AGENTS[:2] for kind in CONTROLS} <= {(line.agent, line.data) for line in ours}
    assert block("desk") == markdown(as_table(merge(ours, [])))
    for path in DESK.glob("*/*.csv"):
        record = json.loads(path.with_suffix(".json").read_text())
        assert all({"command", "commit", "versions", "hardware", "dataset"} <= set(run) for run in record["training"])
