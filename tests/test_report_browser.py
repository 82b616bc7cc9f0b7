"""The page in a real browser: it loads, draws, plays, sorts, and works by keyboard, on a phone and in the dark."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import cta
from browser import chromium, opened
from cta.cli import run
from cta.envs.desk import WORLDS, observe
from cta.envs.desk_play import generate_play
from cta.envs.desk_vector import start_and_goal
from cta.evaluation.videos import write_video
from cta.report import LIMIT_BYTES, build
from cta.report.rollouts import flat_states

RECORDS = Path(__file__).parent.parent / "docs" / "measurements" / "desk-agents"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A page of a tiny trained agent with rollouts and a map, beside the records of longer runs."""
    folder = tmp_path_factory.mktemp("report")
    data, _ = generate_play("desk", episodes=3, validation_episodes=1, episode_steps=20)
    run = cta.train(data, agent="gcbc", steps=2, run_dir=str(folder / HOSTILE.replace("/", "")), quiet=True,
                    eval_episodes=1, agent_settings={"hidden": (8,), "batch_size": 8})  # fmt: skip
    write_map(run.path / "analogies")
    records = [shutil.copytree(RECORDS / name, folder / name) for name in ("cta", "hiql")]
    config = json.loads((records[0] / "config.json").read_text())
    (records[0] / "config.json").write_text(json.dumps({**config, "agent_name": HOSTILE}))
    facts = json.loads((records[1] / "provenance.json").read_text())
    facts["dataset"]["a_name_and_a_value_longer_than_phones_are_wide"] = "0123456789abcdef" * 4
    (records[1] / "provenance.json").write_text(json.dumps(facts))
    return build([run.path, *records], out=folder / "page", episodes=1).path


def write_map(folder, count=40):
    """Starts and goals of the desk's own tasks, laid out on a circle; neighbours are those beside them."""
    world = WORLDS["desk"]
    both = [start_and_goal(world.tasks[i % 5], i) for i in range(count)]
    states, goals = (flat_states(world, np.stack([observe(pair[side]) for pair in both])) for side in (0, 1))
    turn = 2 * np.pi * np.arange(count) / count
    near = [[(i + step) % count for step in (1, -1, 2, -2, 3)] for i in range(count)]
    contents = {
        "format": 1, "dataset": world.dataset_name, "agent": "gcbc", "seed": 0, "step": 2, "pairs": count,
        "method": {"name": "t-SNE"}, "tasks": [HOSTILE, "b", "c", "d", "nothing changes"], "contexts": ["one"],
        "x": np.cos(turn).tolist(), "y": np.sin(turn).tolist(), "task": [i % 5 for i in range(count)],
        "context": [0] * count, "neighbours": {"cosine": near, "l2": near[::-1]},
        "schematic": {"kind": "desk", "meaning": [str(i) for i in range(8)], "state": states, "goal": goals},
        "frames": {}, "queries": [{"point": 7, "name": "seventh"}, {"point": 20, "name": "twentieth"}], "purity": [],
    }  # fmt: skip
    folder.mkdir()
    (folder / "map.json").write_text(json.dumps(contents))


def test_it_loads_whole_and_runs_no_foreign_script(browser, page_file):
    with opened(browser, page_file) as page:
        titles = page.locator("section h2").all_inner_texts()
        assert titles == ["What was trained", "Learning curves", "Success per task", "Scores", "Beside the paper",
                          "The analogy map", "Rollouts", "Configuration and versions"]  # fmt: skip
        assert HOSTILE in page.inner_text("#runs")
        assert page.locator("img[src=x]").count() == 0
        # Two series with three seeds each have a band, the third one has none.
        assert page.locator("#curves .band").count() == 2
        assert page.locator("#tasks svg rect.bar").count() > 5
        # Words of the page itself come before any number a figure would need.
        assert "overlap" in page.inner_text("#top") or "do not rank" in page.inner_text("#top")


def test_a_click_on_a_point_shows_its_neighbours(browser, page_file):
    with opened(browser, page_file) as page:
        assert "Pair 7." in page.inner_text("#map")
        box = page.locator("#map canvas").bounding_box()
        # Point 0 is the rightmost one of the circle.
        at = {"x": box["width"] * (0.5 + 0.47), "y": box["height"] / 2}
        page.hover("#map canvas", position=at)
        assert page.locator("#map .tip svg").count() == 2
        page.click("#map canvas", position=at)
        assert "Pair 0." in page.inner_text("#map")
        shown = page.locator("#map .near button")
        assert [int(shown.nth(i).get_attribute("data-point")) for i in range(5)] == [1, 39, 2, 38, 3]
        assert shown.first.locator("svg").count() == 2
        shown.first.click()
        assert "Pair 1." in page.inner_text("#map")
        page.select_option("#map select >> nth=1", "l2")
        assert int(shown.first.get_attribute("data-point")) == 39
        page.select_option("#map select >> nth=2", "20")
        assert "Pair 20." in page.inner_text("#map")


def test_everything_works_by_keyboard(browser, page_file):
    with opened(browser, page_file) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
        page.focus("#map canvas")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.keyboard.press("ArrowRight")
        first = page.inner_text("#map .map .note")
        assert "Pair 7." not in first
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#map .map .note") != first
        page.focus("#curves svg")
        page.keyboard.press("ArrowRight")
        assert re.search(r"step [\d,]+", page.inner_text("#curves .reading"))
        page.focus("#rollouts input[type=range]")
        page.keyboard.press("End")
        assert page.input_value("#rollouts input[type=range]") == page.get_attribute(
            "#rollouts input[type=range]", "max"
        )
        # Whatever can be clicked can be reached, and says what it is.
        bare = "e => e.filter(n => !n.innerText?.trim() && !n.ariaLabel && !n.labels?.length).length"
        assert page.eval_on_selector_all("button, select, input, canvas, [tabindex='0']", bare) == 0


def wait_until(page, holds):
    """Not Playwright's own waiting, which evaluates text, as the page's policy forbids."""
    for _ in range(100):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError("waited ten seconds in vain")


def test_a_player_plays_pauses_and_scrubs(browser, page_file):
    with opened(browser, page_file) as page:
        card = page.locator("#rollouts .player").first
        slider, button = card.locator("input[type=range]"), card.locator("button")
        last = int(slider.get_attribute("max"))
        assert last >= 3 and card.locator(".pair svg").count() == 2
        button.click()
        wait_until(page, lambda: int(slider.input_value()) >= 2)
        assert "Pause" in button.inner_text()
        button.click()
        stopped = slider.input_value()
        page.wait_for_timeout(400)
        assert slider.input_value() == stopped and "Play" in button.inner_text()
        before = card.locator(".pair svg").first.inner_html()
        slider.fill(str(last))
        assert card.locator("output").inner_text() == f"step {last} of {last}"
        assert card.locator(".pair svg").first.inner_html() != before
        page.select_option("#rollouts select", index=2)
        assert page.locator("#rollouts .player input[type=range]").first.input_value() == "0"


def test_a_video_plays_and_scrubs(browser, tmp_path):
    path = shutil.copytree(RECORDS.parent / "puzzle-4x4-play-v0-cta-200k", tmp_path / "run")
    folder = path / "videos" / "step_200000"
    folder.mkdir(parents=True)
    frames = [np.full((64, 128, 3), shade, np.uint8) for shade in range(0, 240, 8)]
    write_video(folder / "task1_episode0_failure.mp4", frames, rate=6.0)
    file = build([path], out=tmp_path / "page", intervals=False).path
    with opened(browser, file) as page:
        assert "84 ± 3 (8 seeds)" in page.inner_text("#paper")
        card = page.locator("#rollouts .player")
        assert "goal not reached" in card.inner_text()
        slider, clock = card.locator("input[type=range]"), "() => document.querySelector('video').currentTime"
        wait_until(page, lambda: slider.get_attribute("max") == "50")
        card.locator("button").click()
        wait_until(page, lambda: page.evaluate(clock) > 0.4)
        card.locator("button").click()
        slider.fill("30")
        wait_until(page, lambda: page.evaluate(clock) == pytest.approx(3.0, abs=0.1))
        assert card.locator("output").inner_text() == "3.0 of 5.0 s"


def test_tables_sort(browser, page_file):
    with opened(browser, page_file) as page:
        heads = page.locator("#scores th[scope=col]")
        place = heads.all_inner_texts().index("Success, %")
        cells = page.locator(f"#scores tbody tr > :nth-child({place + 1})")

        def values():
            return [float(text.split(" ")[0]) for text in cells.all_inner_texts()]

        heads.nth(place).locator("button").click()
        assert values() == sorted(values(), reverse=True) and len(values()) == 3
        assert heads.nth(place).get_attribute("aria-sort") == "descending"
        heads.nth(place).locator("button").press("Enter")
        assert values() == sorted(values())
        interval = heads.all_inner_texts().index("95% interval")
        heads.nth(interval).locator("button").click()
        # What has no number stays last, whichever way.
        assert "needs 2 seeds" in page.locator("#scores tbody tr").last.inner_text()


@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_phones_and_the_dark(browser, page_file, width, dark):
    with opened(browser, page_file, width=width, dark=dark, touch=width < 500) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", shade)[:3])) > 384
        assert light is not dark
        # The map is drawn: its canvas is not of one colour.
        drawn = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        assert page.eval_on_selector("#map canvas", drawn) > 20
        for summary in page.locator("#settings summary").all():
            summary.click()
        assert page.locator("#settings dd").count() > 100
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_demo_ends_with_such_a_page(browser, tmp_path, capsys):
    """All of it for real, only short: cut data, two trainings, held-out pairs, analogies, the page."""
    out = tmp_path / "demo"
    assert run(["demo", "--steps", "2", "--pairs", "60", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("\n$ cta ") == 7 and "seeds 1, 2 steps" in said
    file = out / "page" / "index.html"
    assert file.stat().st_size < LIMIT_BYTES
    with opened(browser, file) as page:
        assert "do not rank the methods" in page.inner_text("#top")
        assert page.locator("#ooc table").count() == 2
        assert "hiql-analogy" in page.inner_text("#ooc") and "pairs cut" in page.inner_text("#runs")
        assert page.locator("#map .near button").count() > 0 and page.locator("#map table").count() >= 1
        assert page.locator("#rollouts .player").count() == 2
        assert any("held-out pair 1" in text for text in page.locator("#rollouts option").all_inner_texts())
    with opened(browser, file, width=390, touch=True) as page:
        page.locator("#settings summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert run(["demo", "--out", str(out)]) == 1
    assert "not empty" in capsys.readouterr().err
