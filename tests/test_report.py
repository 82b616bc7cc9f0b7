"""`cta report` without a browser: numbers, sentences, escaping, and its limits, on run directories written by hand."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cta.cli import run
from cta.errors import CtaError
from cta.report import build
from cta.report.behaviour import record_rollouts
from cta.report.collect import opening, title, verdict
from cta.report.map_section import pack_integers, pack_numbers, purity_words, read_map
from cta.report.page import embed, render
from cta.report.runs import RunRecord, build_series, group_runs

RECORDS = Path(__file__).parent.parent / "docs" / "measurements"
EVIL = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>"


def write_run(path, *, agent="cta", dataset="desk-play-v0", seeds=(0, 1), steps=4, wins=None, cut=None, **config):
    """Two tasks of ten episodes; task 1 rises to `wins[seed]` successes in the last three of four."""
    path.mkdir(parents=True)
    settings = {"agent": {"lr": 0.001}, "agent_name": agent, "dataset": dataset, "seeds": list(seeds), "steps": steps}
    (path / "config.json").write_text(json.dumps({**settings, **config}))
    made = {"command": "cta data generate desk-play-v0 --seed 0"}
    made = {"ooc": cut, "source": {"name": "whole-v0", "provenance": made}} if cut else made
    facts = {"command": "cta train", "dataset": {"fingerprint": "f" * 64, "transitions": 100, "provenance": made}}
    (path / "provenance.json").write_text(json.dumps(facts))
    lines = ["dataset,agent,seed,step,task,episodes,successes"]
    for step in range(1, steps + 1):
        for seed in seeds:
            for task in (1, 2):
                count = (wins or {}).get(seed, 5) + step - 3 if task == 1 else 0
                lines.append(f"d,x,{seed},{step},{task},10,{count}")
    (path / "eval.csv").write_text("\n".join(lines) + "\n")
    return path


def data_of(page: Path) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])


def write_map(run, *, count=6, **changes):
    folder = run / "analogies"
    folder.mkdir()
    contents = {
        "format": 1, "dataset": "desk-play-v0", "agent": "cta", "seed": 0, "step": 4, "pairs": count,
        "method": {"name": "t-SNE", "perplexity": 30}, "tasks": ["open <b>", "nothing changes"], "contexts": ["shut"],
        "x": list(range(count)), "y": [0.5] * count, "task": [i % 2 for i in range(count)], "context": [0] * count,
        "neighbours": {"cosine": [[(i + 1) % count, -1] for i in range(count)]},
        "schematic": {"kind": "vector", "meaning": ["a", "b"], "state": [[0, 1]] * count, "goal": [[1, 0.5]] * count},
        "frames": {}, "queries": [{"point": 2, "name": "second"}],
        "purity": [{"representation": "α∨", "network": "trained", "purity_%": 91.0, "purity_sd": 1.5}],
    } | changes  # fmt: skip
    (folder / "map.json").write_text(json.dumps(contents))
    return folder


def test_scores_are_means_of_the_last_three_over_tasks(tmp_path):
    one = build_series([RunRecord(write_run(tmp_path / "a", wins={0: 4, 1: 8}))])[0]
    # Task 1 at 30, 40, 50 and 70, 80, 90 %, task 2 at 0: seeds score 20 and 40.
    success = one["success"]
    assert success["seeds"] == {0: 20.0, 1: 40.0}
    assert (success["mean"], success["std"]) == (30.0, 10.0)
    assert one["curves"]["all"] == {"steps": [1, 2, 3, 4], "seeds": {0: [10, 15, 20, 25], 1: [30, 35, 40, 45]}}
    # The four numbers 0, 0, 40, 80: the middle half is 0 and 40.
    assert success["iqm"] == 20.0
    # Student's: 30 ± 12.706 · 14.14/√2, within 0 and 100; of task 1 alone 60 ± twice that.
    assert success["interval"] == [0.0, 100.0] and one["tasks"]["1"]["seeds"] == {0: 40.0, 1: 80.0}


def test_one_seed_has_no_interval(tmp_path):
    one = build_series([RunRecord(write_run(tmp_path / "a", seeds=(3,)))])[0]
    assert one["success"]["mean"] == 25.0 and one["success"]["interval"] is None


def test_runs_of_the_same_settings_are_one_series(tmp_path):
    first = write_run(tmp_path / "a", seeds=(0, 1))
    more = write_run(tmp_path / "b", seeds=(2,), run_dir="elsewhere")
    again = write_run(tmp_path / "c", seeds=(0,))
    other = write_run(tmp_path / "d", seeds=(5,), eval_episodes=20)
    cut = write_run(tmp_path / "e", seeds=(7,), cut={"kind": "held-out"})
    runs = [RunRecord(path) for path in (first, more, again, other, cut)]
    assert group_runs(runs) == [[0, 1], [2], [3], [4]]
    series = build_series(runs)
    assert [one["label"] for one in series] == ["cta (a)", "cta (c)", "cta (d)", "cta"]
    assert series[0]["seeds"] == [0, 1, 2]
    assert [one["data"] for one in series][-1] == "desk-play-v0, pairs cut"


def scored(mean, std=1.0, seeds=4):
    return {"mean": mean, "std": std, "seeds": dict.fromkeys(range(seeds), mean)}


def test_no_more_is_claimed_than_the_numbers_say():
    unclear = verdict({"a": scored(60, 6), "b": scored(66, 6)})
    # Welch's: 6 ± 2.447 · √(2 · 36/3); with n seeds of each √(2 · 48/n) times Student's quantile is below 6.
    assert unclear.endswith(
        "The difference, 6 points, may be chance (95% interval −6 to 18, 4 seeds each; about 12 would tell)."
    )
    apart = verdict({"a": scored(60), "b": scored(80)}, asked=True)
    # 20 ± 2.447 · √(2/3), four seeds with a deviation of 1 each.
    assert apart == (
        "b does it directly in 80 % of episodes, a in 60 %. "
        "The difference, 20 points, is more than chance (95% interval 18 to 22, 4 seeds each)."
    )
    assert "does not rank" in verdict({"a": scored(60, seeds=1), "b": scored(90, seeds=1)})
    assert "One seed says little" in verdict({"a": scored(60, seeds=1)})
    five = verdict({name: scored(50 + place) for place, name in enumerate("abcde")})
    assert "a in" not in five and ", and 1 more below. The difference between the first two, 1 points" in five


def test_it_opens_with_what_was_asked(tmp_path):
    runs = [RunRecord(write_run(tmp_path / name, agent=name)) for name in ("a", "b")]
    series = build_series(runs)
    assert title(series) == "a and b on desk-play-v0"
    found = opening(runs, series, [])
    assert found["question"] == "How often is the goal reached?"
    assert found["done"] == "desk-play-v0 · 2 seeds · 4 steps · 10 episodes per task"
    assert found["answer"][0].startswith("a reaches the goal in 25 % of episodes, b in 25 %.")
    assert found["world"] == [
        "A gripper slides a drawer, a window and a tray, and presses buttons that lock and unlock the first two. "
        "Nothing was held out; scored are the world's 2 tasks."
    ]


def test_packed_numbers_come_back():
    def unpack(packed):
        kind = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32}[packed["kind"]]
        array = np.frombuffer(base64.b64decode(packed["data"]), kind).reshape(packed["shape"]).astype(float)
        return array * packed.get("scale", 1) + packed.get("offset", 0)

    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=50), 1e4 * rng.random(50), np.full(50, 3.0)])
    assert np.abs(unpack(pack_numbers(values)) - values).max(axis=0) == pytest.approx([0, 0, 0], abs=0.1)
    assert np.abs(unpack(pack_numbers(values))[:, 0] - values[:, 0]).max() < 1e-4
    for top in (255, 256, 65536):
        assert unpack(pack_integers([[0, top]])).tolist() == [[0, top]]


def test_data_cannot_leave_its_element():
    hostile = {"name": EVIL, "other": "<!-- \u2028 & {{script}}"}
    text = embed(hostile)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == hostile


def test_only_the_page_s_own_script_may_run(tmp_path):
    report = build([write_run(tmp_path / "a{{data}}", agent=EVIL)], out=tmp_path / "page", episodes=0)
    page = report.path.read_text()
    assert EVIL not in page and "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page and "default-src 'none'" in page
    assert data_of(report.path)["runs"][0]["agent"] == EVIL
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


@pytest.mark.parametrize("words", ["--steps 0", "--pairs 4", "--seeds x"])
def test_the_demo_refuses_before_it_begins(tmp_path, capsys, words):
    assert run(["demo", *words.split(), "--out", str(tmp_path / "out")]) == 1
    assert words.split()[0] in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_ours_stand_beside_the_paper_s(tmp_path):
    report = build([RECORDS / "puzzle-4x4-play-v0-cta-200k"], out=tmp_path, episodes=0)
    data = data_of(report.path)
    table = next(table for table in data["paper"] if table["title"] == "Main table")
    row = next(row for row in table["rows"] if row["agent"] == "cta")
    assert (row["mean"], row["std"], row["seeds"]) == (84, 3, 8)
    assert row["ours"]["seeds"] == 4 and row["ours"]["steps"] == 200_000
    assert row["ours"]["mean"] == pytest.approx(67.9, abs=0.1)


PAIRS = [
    {"name": "open", "context": {"window": "closed", "window_lock": "locked"}, "event": {"drawer": "open"}, "K": 15},
    {"name": "open", "context": {"window": "open", "drawer": "closed"}, "event": {"drawer": "open"}, "K": 15},
]


def write_pairs(path, wins):
    """Held-out pairs of scene: `wins[seed]` direct successes of ten on each pair, and 8 in all."""
    lines = ["dataset,agent,seed,step,task,episodes,successes,pair,direct,lenient"]
    lines += [
        f"scene-play-v0,cta,{seed},4,1,10,8,pair{pair},{count},7" for seed, count in wins.items() for pair in (1, 2)
    ]
    (path / "ooc.csv").write_text("\n".join(lines) + "\n")


def test_a_page_of_held_out_pairs(tmp_path):
    counts = {"pairs": [{"events": 3, "removed": 1045}], "removed": 1045, "transitions_left": 55}
    cut = {"kind": "held-out", "first_pair": 1, "pair": PAIRS, "report": counts}
    path = write_run(tmp_path / "a", dataset="x/scene-play-v0.npz", cut=cut)
    write_pairs(path, {0: 2, 1: 6})
    data = data_of(build([path], out=tmp_path / "page", episodes=0).path)
    # Not compared with what the paper has for the whole data.
    assert all(row["ours"] is None for table in data["paper"] for row in table["rows"])
    opens = data["opening"]
    assert opens["question"] == "Can an agent do a known task in a context it never saw it in?"
    assert opens["answer"] == ["Asked for what was cut out, cta does it directly in 40 % of episodes."]
    assert "2 combinations of a task and a context were cut out of the data (1,045 of 1,100" in opens["world"][0]
    direct = data["series"][0]["pairs"]["all"]["direct"]
    assert direct["seeds"] == {"0": 20.0, "1": 60.0} and direct["interval"] == [0.0, 100.0]
    (study,) = data["ooc"]
    # Pairs have names; two of the same name are told apart.
    assert study["names"] == {"pair1": "open (1)", "pair2": "open (2)"}
    (first, second) = study["cut"]["rows"]
    assert first[:2] == ["open (1)", {"text": "the window closed and locked", "class": "wrap"}]
    assert first[2:] == [{"text": text, "sort": number} for text, number in (("15", 15), ("3", 3), ("1,045", 1045))]
    assert second[1]["text"] == "the window open"  # that the drawer was shut, its opening says
    assert study["drawn"]["words"] == "open, with the window closed and locked"
    assert study["drawn"]["schematic"]["state"][:4] == [0, 0, 1, 0] and study["drawn"]["schematic"]["goal"][0] == 1
    (note,) = data["data_notes"]
    assert "pairs cut: cut from whole-v0, made by `cta data generate desk-play-v0 --seed 0`, fingerprint ffff" in note
    # It has a section of its own, so it is not listed again among the versions.
    assert "ooc" not in data["runs"][0]["provenance"]["dataset"]["provenance"]
    ours, paper = study["table"]["rows"]
    titles = [column["title"] for column in study["table"]["columns"]]
    assert titles[4:6] == ["open (1)", "open (2)"]
    assert [ours[0], ours[1], ours[4]["text"], ours[-1]["text"]] == ["cta", "pairs cut", "40±20 (80±0)", "70±0"]
    assert (paper[1], paper[4]["text"]) == ("paper", "57±12 (98±2)")


def test_events_of_an_episode_in_words():
    from cta.ooc import find_layout, held_out_of
    from cta.ooc.evaluation import EpisodeLog
    from cta.report.behaviour import events

    desk, lights = (held_out_of(find_layout(name)) for name in ("desk-play-v0", "lights-3x3-play-v0"))
    start = {
        "drawer": "closed",
        "window": "closed",
        "tray": "closed",
        "drawer_lock": "unlocked",
        "window_lock": "unlocked",
    }
    detour = ((2, {"window_lock": "locked"}), (5, {"drawer": "open"}), (9, {"window_lock": "unlocked"}))
    log = EpisodeLog(1, 0, 0, start, detour, True, 10)
    assert events(log, desk.pairs[0], desk.layout) == [
        [3, "window locked", "aside"], [6, "drawer open", "elsewhere"], [10, "window unlocked", "aside"],
    ]  # fmt: skip
    board = {f"light{i}": int(i in (0, 3)) for i in range(9)}
    press = ((4, {"light0": 0, "light1": 1, "light3": 0}), (6, {"light8": 1}))
    said = events(EpisodeLog(1, 0, 0, board, press, True, 10), lights.pairs[0], lights.layout)
    assert said == [[5, "press 0", "task"], [7, "light8 1", "aside"]]


def test_what_purity_shows_in_words():
    def row(name, network, rate, deviation=0.0):
        return {"representation": name, "network": network, "purity_across_contexts_%": rate,
                "purity_across_contexts_sd": deviation, "purity_shuffled_labels_%": 6.0}  # fmt: skip

    rows = [row("g − s", "none", 62.0), row("ψ(g)", "trained", 5.0), row("α∨", "trained", 40.0, 3.0),
            row("η(α∨)", "trained", 60.0, 2.0), row("α∨", "untrained", 90.0)]  # fmt: skip
    intro, said = purity_words(rows)
    assert "62 % have its task" in intro and "chance: 6 %" in intro
    assert said == "α∨ (40 %) loses to that, η(α∨) (60 %) is level with that."
    assert purity_words(rows[1:]) == [] and purity_words([]) == []


def test_maps_are_packed_and_frames_dropped_when_they_do_not_fit(tmp_path):
    from PIL import Image

    path = write_run(tmp_path / "a")
    folder = write_map(path, frames={str(i): {"state": "s.png", "goal": "s.png"} for i in range(6)})
    noise = np.random.default_rng(0).integers(0, 255, (144, 144, 3), np.uint8)
    Image.fromarray(noise).save(folder / "s.png")
    whole = build([path], out=tmp_path / "whole", episodes=0)
    data = data_of(whole.path)
    assert list(data["maps"][0]["frames"]) == ["2", "3", "0", "1", "4", "5"] and not whole.left_out
    assert data["maps"][0]["neighbours"]["cosine"]["shape"] == [6, 2] and data["maps"][0]["played"] is False
    limit = whole.size - 10_000
    small = build([path], out=tmp_path / "small", episodes=0, limit=limit)
    kept = data_of(small.path)["maps"][0]["frames"]
    assert small.size <= limit and 0 < len(kept) < 6 and "2" in kept
    assert small.left_out == [f"Left out to keep the page small: {6 - len(kept)} × frames of a."]
    with pytest.raises(CtaError, match="name fewer runs"):
        build([path], out=tmp_path / "none", episodes=0, limit=10_000)
    assert not (tmp_path / "none" / "index.html").exists()


def test_what_is_wrong_gets_a_line(tmp_path, capsys):
    path = write_run(tmp_path / "a")
    write_map(path, format=2)
    with pytest.raises(CtaError, match="format 2"):
        read_map(path)
    shutil.rmtree(path / "analogies")
    write_map(path, path={"numbers": [[0, 1]], "state": [0] * 6, "goal": [1] * 6})
    with pytest.raises(CtaError, match="outside the path"):
        read_map(path)
    (path / "analogies" / "map.json").write_text('{"format": 1}')
    with pytest.raises(CtaError, match="run it again"):
        read_map(path)
    assert run(["report", str(path), str(path)]) == 1
    assert "named twice" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "nothing")]) == 1
    assert "no such run directory" in capsys.readouterr().err
    (path / "eval.csv").write_text("dataset,agent,seed,step,task,episodes,successes\nd,a,0,1,1,10,11\n")
    assert run(["report", str(path)]) == 1
    assert "11 successes in 10 episodes" in capsys.readouterr().err


def test_videos_name_the_seed_they_show(tmp_path):
    path = write_run(tmp_path / "a", dataset="scene-play-v0")
    step = path / "videos" / "step_4"
    for folder, told in ((step, "videos at step 4."), (step / "seed_1", "videos of seed 1 at step 4.")):
        folder.mkdir(parents=True)
        (folder / "task1_episode0_success.mp4").write_text(told)
        found, note = record_rollouts(RunRecord(path), episodes=1)
        assert note == told and [base64.b64decode(one["video"]).decode() for one in found] == [told]


def test_a_minari_dataset_has_the_name_its_run_has(tmp_path):
    assert (
        RunRecord(write_run(tmp_path / "a", dataset="minari:D4RL/door/human-v2")).dataset == "minari-D4RL-door-human-v2"
    )


def test_a_run_that_was_never_scored_still_has_a_page(tmp_path):
    path = write_run(tmp_path / "a")
    (path / "eval.csv").write_text("dataset,agent,seed,step,task,episodes,successes\n")
    data = data_of(build([path], out=tmp_path / "page").path)
    assert data["opening"]["question"] == "What was trained?" and data["opening"]["answer"] == []
    assert data["opening"]["done"] == "desk-play-v0 · 2 seeds · 4 steps · nothing was scored yet"
    assert data["rollout_notes"] == ["cta: no rollouts, since there is no checkpoint."]
    assert render(data)


def test_runs_on_own_data_have_curves(tmp_path):
    """They have no world to be scored in: their losses and the order of held-out trajectories are shown."""
    path = write_run(tmp_path / "run", dataset="mine", seeds=(0,))
    (path / "eval.csv").write_text("dataset,agent,seed,step,task,episodes,successes\n")
    (path / "train.csv").write_text("seed,step,training/total_loss,steps_per_s\n0,2,0.5,9\n0,4,0.25,9\n")
    (path / "offline.csv").write_text("dataset,agent,seed,step,episodes,value_order,dual_order\nmine,cta,0,4,3,0.75,\n")
    (curves,) = data_of(build([path], out=tmp_path / "page", episodes=0).path)["training"]
    assert curves == {
        "held-out trajectories/value_order": {"steps": [4], "seeds": {"0": [0.75]}},
        "training/total_loss": {"steps": [2, 4], "seeds": {"0": [0.5, 0.25]}},
    }
