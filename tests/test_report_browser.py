"""The page in a real browser: it answers, draws, plays, sorts, and works by keyboard, on a phone and in the dark."""

import csv
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
from cta.evaluation.rollout import write_video
from cta.ooc import find_layout, held_out_of
from cta.report import LIMIT_BYTES, build
from cta.report.behaviour import flat_states
from cta.report.page import render

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
    near = [[(i + step) % count for step in (1, -1, 4, -4, 3)] for i in range(count)]
    away = [[(i + step) % count for step in (1, -1, 2, -2, 3)] for i in range(count)]
    halfway = np.mean([states, goals], axis=0).tolist()
    path = [row for three in zip(states, halfway, goals, strict=True) for row in three]
    contexts = [f"drawer {a}, window {b}" for a in ("closed", "open") for b in ("closed", "open")]
    contents = {
        "format": 1, "dataset": world.dataset_name, "agent": "gcbc", "seed": 0, "step": 2, "pairs": count,
        "method": {"name": "t-SNE"}, "tasks": [HOSTILE, "b", "c", "d", "nothing changes"], "contexts": contexts,
        "x": np.cos(turn).tolist(), "y": np.sin(turn).tolist(), "task": [i % 5 for i in range(count)],
        "context": [i % 4 for i in range(count)], "neighbours": {"cosine": near, "l2": near[::-1]},
        "neighbours_elsewhere": {"cosine": away, "l2": away[::-1]},
        "path": {"numbers": path, "state": [3 * i for i in range(count)], "goal": [3 * i + 2 for i in range(count)]},
        "schematic": {"kind": "desk", "meaning": [str(i) for i in range(8)], "state": states, "goal": goals},
        "frames": {}, "queries": [{"point": 7, "name": "seventh"}, {"point": 20, "name": "twentieth"}], "purity": [],
    }  # fmt: skip
    folder.mkdir()
    (folder / "map.json").write_text(json.dumps(contents))


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    """A page of two tiny agents on the board of lights, asked for its held-out pairs, with maps of the same pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    data, _ = generate_play("lights-3x3", episodes=3, validation_episodes=1, episode_steps=20)
    held_out, runs = held_out_of(find_layout("lights-3x3-play-v0")), []
    for agent, wins in (("gcbc", (6, 8)), ("gcivl", (3, 5))):
        run = cta.train(data, agent=agent, seeds=2, steps=2, run_dir=str(folder / agent), quiet=True, eval_episodes=1,
                        agent_settings={"hidden": (8,), "batch_size": 8})  # fmt: skip
        facts = json.loads((run.path / "provenance.json").read_text())
        facts["dataset"]["provenance"] = {"ooc": {"kind": "held-out", "first_pair": 1, **held_out.record()}}
        (run.path / "provenance.json").write_text(json.dumps(facts))
        lines = ["dataset,agent,seed,step,task,episodes,successes,pair,direct,lenient"]
        lines += [f"lights-3x3-play-v0,{agent},{seed},2,1,10,9,pair{pair},{wins[seed]},8"
                  for seed in (0, 1) for pair in range(1, 6)]  # fmt: skip
        (run.path / "ooc.csv").write_text("\n".join(lines) + "\n")
        write_map(run.path / "analogies")
        runs.append(run.path)
    return build(runs, out=folder / "page", episodes=1).path


def test_the_answer_is_seen_without_scrolling(browser, pairs_file):
    with opened(browser, pairs_file, width=1366, height=768) as page:
        assert page.inner_text("h1") == "Can an agent do a known task in a context it never saw it in?"
        said = page.inner_text(".answer")
        assert "gcbc does it directly in 70\u00a0% of episodes, gcivl in 40\u00a0%." in said and "may be chance" in said
        assert "press 4, with lights 1, 3 on and 4, 5, 7 off" in page.inner_text(".held")
        for part, count in ((".bars .dot", 4), (".bars .whisker", 2), (".bars .more", 2), (".held svg", 2)):
            nodes = page.locator(part)
            assert nodes.count() == count
            assert all(node.bounding_box()["y"] + node.bounding_box()["height"] < 768 for node in nodes.all())
        assert page.locator("#rollouts h2").bounding_box()["y"] < 768
        titles = page.locator("section h2").all_inner_texts()
        assert titles == ["The same unseen pair, side by side", "Pair by pair", "Learning curves", "The analogy map",
                          "Tables", "Configuration and versions"]  # fmt: skip
        # Pairs have names.
        assert not re.search(r"pair ?[1-5]\b", page.inner_text("main"), re.I)
        assert "press 8" in page.inner_html("#pairs svg")


def test_both_play_the_same_pair_and_a_detour_is_listed(browser, pairs_file):
    # What an untrained policy does is nothing: one of the films becomes that of a detour.
    data = json.loads(re.search(r'id="data">(.*?)</script>', pairs_file.read_text(), re.S)[1])
    film = next(one for one in data["rollouts"] if one["key"] == "pair4/0" and one["run"] == 1)
    film |= {"success": True, "outcome": "goal reached by a detour"}
    film["events"] = [[3, "press 5", "aside"], [7, "press 1", "elsewhere"]] + [
        [t, "press 5", "aside"] for t in range(9, 19)
    ]
    file = pairs_file.with_name("detour.html")
    file.write_bytes(render(data))
    with opened(browser, file) as page:
        button, slider = page.locator("#rollouts .play"), page.locator("#rollouts input[type=range]")
        # It opens with the pair that is drawn at the top.
        assert page.input_value("#rollouts select") == "pair4/0"
        assert "Play both" in button.inner_text() and page.locator("#rollouts .player").count() == 3
        boards = page.locator("#rollouts .player:not(.wanted) svg")
        before = [boards.nth(i).inner_html() for i in (0, 1)]
        button.click()
        wait_until(page, lambda: int(slider.input_value()) >= 2)
        assert "Pause" in button.inner_text()
        button.click()
        assert all(boards.nth(i).inner_html() != before[i] for i in (0, 1))
        card = page.locator("#rollouts .player:not(.wanted)").nth(1)
        assert "The detour:" in card.inner_text() and "by a detour" in card.inner_text()
        shown = card.locator(".event:visible")
        assert shown.nth(1).get_attribute("aria-label") == "step 7: press 1 (the task, in another context)"
        shown.nth(1).click()
        assert slider.input_value() == "7" and card.locator(".event.past").count() == 2
        assert shown.count() == 7 and shown.last.inner_text() == "6 more"
        shown.last.click()
        assert shown.count() == 12


def test_two_maps_side_by_side(browser, pairs_file):
    with opened(browser, pairs_file) as page:
        assert page.locator("#map canvas").count() == 2 and page.locator("#map .near").count() == 2
        page.locator("#map canvas").nth(1).focus()
        page.keyboard.press("ArrowRight")
        chosen = int(re.search(r"Pair (\d+)", page.inner_text(".chosen"))[1])
        assert chosen != 7
        for near in page.locator("#map .near").all():
            assert int(near.locator("button").first.get_attribute("data-point")) == (chosen + 1) % 40


def test_it_loads_whole_and_runs_no_foreign_script(browser, page_file):
    with opened(browser, page_file) as page:
        titles = page.locator("section h2").all_inner_texts()
        assert titles == ["Rollouts", "Learning curves", "The analogy map", "Tables", "Configuration and versions"]
        assert HOSTILE in page.inner_text("#tables") and HOSTILE in page.inner_text("#map")
        assert page.locator("img[src=x]").count() == 0
        # Two series with three seeds each have a band, the third one has none.
        assert page.locator("#curves .band").count() == 2
        assert page.locator("#tasks svg rect.bar").count() > 5
        said = page.inner_text("#top")
        assert "may be chance" in said or "does not rank" in said


def test_a_click_on_a_point_shows_its_neighbours(browser, page_file):
    with opened(browser, page_file) as page:
        assert "Pair 7." in page.inner_text("#map")
        box = page.locator("#map canvas").bounding_box()

        def at(point):
            turn = 2 * np.pi * point / 40
            return {"x": box["width"] * (0.5 + 0.47 * np.cos(turn)), "y": box["height"] * (0.5 - 0.47 * np.sin(turn))}

        page.hover("#map canvas", position=at(0))
        assert page.locator("#map .tip svg").count() == 2
        page.click("#map canvas", position=at(0))
        assert "Pair 0." in page.inner_text("#map")
        named, shown = page.locator("#map select").first, page.locator("#map .near button")
        # The choice of queries follows, and from the beginning neighbours are of other contexts.
        assert named.evaluate("node => node.selectedOptions[0].textContent") == f"pair 0: {HOSTILE}"
        assert [int(shown.nth(i).get_attribute("data-point")) for i in range(5)] == [1, 39, 2, 38, 3]
        page.select_option("#map select >> nth=1", "")
        assert [int(shown.nth(i).get_attribute("data-point")) for i in range(5)] == [1, 39, 4, 36, 3]
        assert "same context" in page.inner_text("#map .near")
        assert shown.first.locator("svg").count() == 2
        shown.first.click()
        assert "Pair 1." in page.inner_text("#map")
        page.select_option("#map select >> nth=2", "l2")
        assert int(shown.first.get_attribute("data-point")) == 39
        page.select_option("#map select >> nth=0", "20")
        assert "Pair 20." in page.inner_text("#map")
        # Pairs in which nothing changes are there when they are asked for.
        page.click("#map canvas", position=at(4))
        assert "Pair 20." in page.inner_text("#map")
        page.check("#map input[type=checkbox]")
        page.click("#map canvas", position=at(4))
        assert "Pair 4." in page.inner_text("#map")
        # Colours of one thing of the context have two names; no legend has long ones.
        page.select_option("#map select >> nth=3", label="drawer closed or open")
        names = page.locator("#map .legend button .key").all_inner_texts()
        assert [text.split("\n")[0] for text in names] == ["drawer closed", "drawer open"]
        page.select_option("#map select >> nth=3", label="the whole context")
        assert page.locator("#map .legend button").count() == 0 and "4 contexts" in page.inner_text("#map .legend")


def test_a_click_plays_the_transition_and_has_a_link(browser, page_file):
    with opened(browser, page_file, motion=True) as page:
        box = page.locator("#map canvas").bounding_box()
        page.click("#map canvas", position={"x": box["width"] * 0.97, "y": box["height"] / 2})
        caption = page.locator(".chosen figcaption").first
        wait_until(page, lambda: caption.inner_text() == "step 2 of 2")
        first, last = page.locator(".chosen .pair svg").all()
        assert first.inner_html() == last.inner_html()
        link = page.locator(".chosen a").get_attribute("href")
        assert page.url.endswith(link) and link == "#point-0-0"
    with opened(browser, page_file, part="#point-0-13") as page:
        wait_until(page, lambda: "Pair 13." in page.inner_text("#map"))
        assert -5 < page.locator("#map").bounding_box()["y"] < 200
    with opened(browser, page_file, part="#point-0-4") as page:
        # In this pair nothing changes, so there is no task that others could share.
        assert "Pair 4." in page.inner_text("#map")
        heads = page.locator("#map h3").all_inner_texts()
        assert (
            any(re.search(r"The \d+ nearest$", head) for head in heads)
            and page.locator("#map .near .good").count() == 0
        )
    with opened(browser, page_file, part="#point-9-99999") as page:
        assert "Pair 7." in page.inner_text("#map")


def test_every_table_is_there_as_csv(browser, pairs_file):
    with opened(browser, pairs_file) as page:
        captions = page.locator("#tables h3").count()
        assert page.locator("#tables .csv").count() == captions == page.locator("#tables table").count() + 1 >= 4
        # Runs that differ in nothing but the agent get a line instead of a table with one column.
        trained = page.locator(".tabled", has=page.locator("h3", has_text="What was trained"))
        assert trained.locator("table").count() == 0 and "gcbc, gcivl: data lights-3x3-play-v0" in trained.inner_text()
        # What is the same in all rows is no column, but it is in the file.
        table = page.locator(".tabled", has=page.locator("h3", has_text=re.compile("^Held-out pairs$")))
        heads = [text.split("\u00a0")[0].strip() for text in table.locator("th[scope=col] button").all_inner_texts()]
        assert heads == ["Agent", "press 0", "press 1", "press 8", "press 4", "press 3", "All", "Lenient, all"]
        assert "data pairs cut, seeds 2, steps 2" in table.inner_text()
        with page.expect_download() as download:
            table.locator(".csv").click()
        assert download.value.suggested_filename == "held-out-pairs.csv"
        rows = list(csv.reader(download.value.path().read_text("utf-8-sig").splitlines()))
        assert rows[0][:5] == ["Agent", "Data", "Seeds", "Steps", "press 0"] and len(rows) == 3
        assert rows[1][:5] == ["gcbc", "pairs cut", "2", "2", "70±10 (90±0)"]


def test_words_are_explained_on_hover_by_keyboard_and_by_touch(browser, pairs_file):
    with opened(browser, pairs_file) as page:
        bubble, term = page.locator("#bubble"), page.locator(".bars .term")
        assert term.inner_text() == "direct" and bubble.is_hidden()
        term.hover()
        assert "nothing changed on the way" in bubble.inner_text()
        page.mouse.move(0, 0)
        assert bubble.is_hidden()
        term.focus()
        assert bubble.is_visible()
        page.keyboard.press("Escape")
        assert bubble.is_hidden()
        for place, word in (("#tables", "Lenient"), ("#map", "dual analogy"), ("#tables", "Interquartile")):
            page.locator(f"{place} .term[aria-label*='{word}']").first.hover()
            assert word in bubble.inner_text()
    with opened(browser, pairs_file, width=390, touch=True) as page:
        page.locator(".bars .term").tap()
        box = page.locator("#bubble").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_everything_works_by_keyboard(browser, page_file):
    with opened(browser, page_file) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
        page.focus("#map canvas")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.keyboard.press("ArrowRight")
        first = page.inner_text("#map .chosen .note")
        assert "Pair 7." not in first
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#map .chosen .note") != first
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
        part = page.locator("#rollouts")
        slider, button, states = part.locator("input[type=range]"), part.locator(".play"), part.locator(".player svg")
        last = int(slider.get_attribute("max"))
        assert last >= 3 and states.count() == 2  # the goal, and what is played
        button.click()
        wait_until(page, lambda: int(slider.input_value()) >= 2)
        assert "Pause" in button.inner_text()
        button.click()
        stopped = slider.input_value()
        page.wait_for_timeout(400)
        assert slider.input_value() == stopped and button.inner_text() == "▶ Play"
        before = states.last.inner_html()
        slider.fill(str(last))
        assert part.locator("output").inner_text() == f"step {last} of {last}"
        assert states.last.inner_html() != before
        page.select_option("#rollouts select", index=2)
        assert slider.input_value() == "0"


def test_a_video_plays_and_scrubs(browser, tmp_path):
    path = shutil.copytree(RECORDS.parent / "puzzle-4x4-play-v0-cta-200k", tmp_path / "run")
    folder = path / "videos" / "step_200000"
    folder.mkdir(parents=True)
    frames = [np.full((64, 128, 3), shade, np.uint8) for shade in range(0, 240, 8)]
    write_video(folder / "task1_episode0_failure.mp4", frames, rate=6.0)
    file = build([path], out=tmp_path / "page").path
    with opened(browser, file) as page:
        assert "84 ± 3 (8 seeds)" in page.inner_text("#tables") and page.locator(".bars .paper").count() == 1
        card = page.locator("#rollouts")
        assert "goal not reached" in card.inner_text()
        slider, clock = card.locator("input[type=range]"), "() => document.querySelector('video').currentTime"
        wait_until(page, lambda: slider.get_attribute("max") == "50")
        card.locator(".play").click()
        wait_until(page, lambda: page.evaluate(clock) > 0.4)
        card.locator(".play").click()
        slider.fill("30")
        wait_until(page, lambda: page.evaluate(clock) == pytest.approx(3.0, abs=0.1))
        assert card.locator("output").inner_text() == "3.0 of 5.0 s"


def test_tables_sort(browser, page_file):
    with opened(browser, page_file) as page:
        table = page.locator(".tabled", has=page.locator("h3", has_text=re.compile("^Scores$")))
        heads = table.locator("th[scope=col]")
        titles = [text.split("\n")[0].strip() for text in heads.all_inner_texts()]
        place = titles.index("Success, %")
        cells = table.locator(f"tbody tr > :nth-child({place + 1})")

        def values():
            return [float(text.split(" ")[0]) for text in cells.all_inner_texts()]

        heads.nth(place).locator("button").click()
        assert values() == sorted(values(), reverse=True) and len(values()) == 3
        assert heads.nth(place).get_attribute("aria-sort") == "descending"
        heads.nth(place).locator("button").press("Enter")
        assert values() == sorted(values())
        interval = titles.index("95% interval")
        heads.nth(interval).locator("button").click()
        # What has no number stays last, whichever way.
        assert "needs 2 seeds" in table.locator("tbody tr").last.inner_text()


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
        # Nothing lies over its points.
        page.locator("#map canvas").first.scroll_into_view_if_needed()
        over = """c => { const b = c.getBoundingClientRect(), at = [0.05, 0.5, 0.95];
            return at.flatMap(u => at.map(v => document.elementFromPoint(b.x + u * b.width, b.y + v * b.height)))
                .filter(n => n && n !== c).length; }"""
        assert page.eval_on_selector("#map canvas", over) == 0
        for summary in page.locator("#settings summary").all():
            summary.click()
        assert page.locator("#settings dd").count() > 100
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_the_results_come_first(browser, pairs_file):
    with opened(browser, pairs_file, width=390, height=844, touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        bars, words = (page.locator(part).bounding_box()["y"] for part in (".hero .bars", ".hero .what"))
        assert page.locator(".answer").bounding_box()["y"] < bars < words
        assert page.locator(".bars svg").bounding_box()["y"] < 844
        # Both play side by side, so that both are seen at once.
        left, right = (page.locator("#rollouts .player:not(.wanted)").nth(i).bounding_box() for i in (0, 1))
        assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]


@pytest.mark.slow
def test_the_demo_ends_with_such_a_page(browser, tmp_path, capsys):
    """All of it for real, only short: cut data, two trainings, held-out pairs, analogies, the page."""
    out = tmp_path / "demo"
    assert run(["demo", "--seeds", "1", "--steps", "2", "--pairs", "60", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("\n$ cta ") == 2 and "seeds 1, 2 steps" in said and "not to be had" not in said
    assert "on pairs that were never shown" in said
    file = out / "page" / "index.html"
    assert file.stat().st_size < LIMIT_BYTES
    with opened(browser, file) as page:
        assert "a context it never saw it in" in page.inner_text("h1") and page.locator(".held svg").count() == 2
        tables = page.inner_text("#tables")
        assert all(text in tables for text in ("Held-out pairs", "What was cut", "pairs cut", "near analogies"))
        assert page.locator("#map .near button").count() > 0
        assert page.locator("#rollouts .player").count() == 3 and page.locator("#rollouts .events").count() == 2
    with opened(browser, file, width=390, touch=True) as page:
        page.locator("#settings summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert run(["demo", "--out", str(out)]) == 1
    assert "seeds 1 and steps 2" in capsys.readouterr().err
