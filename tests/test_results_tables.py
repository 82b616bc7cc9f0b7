"""Tables from constructed files, in every format, and the blocks of documents."""

import csv
import io
import re
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from scipy.stats import ttest_ind

from cta.cli import run
from cta.cli.table import filler
from cta.results import bars
from cta.results.formats import MARK, NOTHING, filled
from cta.results.pairs import read_pairs
from cta.results.paper import TABLES, paper_scores
from cta.results.records import empty
from cta.results.statistics import difference_interval, summarise
from cta.results.store import Results
from test_results_store import PUZZLE, record, rows

ROOT = Path(__file__).parent.parent
OOC = "dataset,agent,seed,step,task,episodes,successes,pair,direct,lenient\n" + "".join(
    f"{PUZZLE},cta,{seed},{step},{pair},50,{45 + seed},pair{pair},{30 + pair + seed},{40 + seed}\n"
    for seed in range(4)
    for step in (800_000, 900_000, 1_000_000)
    for pair in range(1, 6)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """CTA complete, one baseline with two seeds whose weights were rounded; held-out pairs."""
    path = tmp_path_factory.mktemp("results")
    given = [row._replace(successes=38 + row.seed) for row in rows()]
    Results(path).add(record(), given)
    half = record(seeds=[0, 1], agent="hiql-analogy")
    half["scoring"][0]["weights"] = "float16"
    Results(path).add(half, rows(seeds=[0, 1], agent="hiql-analogy", wins=25))
    (path / "ooc").mkdir()
    (path / "ooc" / f"{PUZZLE}.cta.csv").write_text(OOC)
    return path


def printed(capsys, folder, *words):
    assert run(["table", *words, "--results", str(folder)]) == 0
    return capsys.readouterr().out


def test_a_line_says_everything(folder, capsys):
    text = printed(capsys, folder, "main", "--ours", "--format", "csv")
    lines = {line["agent"]: line for line in csv.DictReader(io.StringIO(text))}
    cta = lines["cta"]
    # Seeds have 76, 78, 80, 82 %: mean 79, deviation √5.
    assert (cta["dataset"], cta["paper"], cta["ours"]) == (PUZZLE, "84 ± 3", "79.0 ± 2.2")
    assert (cta["seeds"], cta["steps"], cta["episodes"]) == ("4 (0–3)", "800k, 900k, 1M", "50")
    assert (cta["data"], cta["state"]) == ("generated, seed 0, MuJoCo 3.3.7", "complete")
    low, high = (float(word) for word in cta["95% CI"].strip("[]").split(","))
    assert 76 <= low < 79 < high <= 82
    assert cta["ours − paper (95% CI)"] == "-5.0 [-9.0, -1.0]"
    assert lines["hiql-analogy"]["state"] == "incomplete"


def test_without_ours_the_whole_table_of_the_paper_is_there(folder, capsys):
    text = printed(capsys, folder, "main", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(text)))) == len(paper_scores("main")) == 108


@pytest.mark.parametrize("name", TABLES)
def test_every_table_in_every_format(folder, capsys, name):
    for kind in ("terminal", "markdown", "latex", "csv"):
        text = printed(capsys, folder, name, "--agents", "cta", "--no-intervals", "--format", kind)
        assert "cta" in text
        if kind == "latex":
            code = "".join(line for line in text.splitlines() if not line.startswith("%"))
            assert code.startswith("\\begin{tabular}") and code.count("\\\\") >= 2 and "±" not in code
        if kind == "markdown":
            widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
            assert len(widths) == 1


def test_incomplete_cells_and_rounded_weights_are_marked_in_every_format(folder, capsys):
    for kind in ("terminal", "markdown", "latex", "csv"):
        text = printed(capsys, folder, "main", "--ours", "--no-intervals", "--format", kind)
        assert "incomplete" in text
        assert kind == "csv" or f"hiql-analogy on {PUZZLE}, missing 2 of 4 seeds" in text
        assert kind == "csv" or "rounded to float16" in text


def test_held_out_pairs(folder, capsys):
    text = printed(capsys, folder, "ooc", "--ours", "--format", "csv")
    lines = {line["pair"]: line for line in csv.DictReader(io.StringIO(text))}
    assert list(lines) == ["pair1", "pair2", "pair3", "pair4", "pair5", "all"]
    # Pair 1: 31…34 of 50 direct, 45…48 successes.
    assert lines["pair1"]["ours direct (success)"] == "65.0 ± 2.2 (93.0 ± 2.2)"
    assert lines["all"]["ours direct (success)"] == "69.0 ± 2.2 (93.0 ± 2.2)"
    assert lines["all"]["paper direct (success)"] == "80 ± 8 (100 ± 1)"
    assert lines["all"]["state"] == "complete"


def test_more_direct_successes_than_successes_are_refused(tmp_path, capsys):
    (tmp_path / "ooc").mkdir()
    (tmp_path / "ooc" / "x.csv").write_text(OOC.splitlines()[0] + f"\n{PUZZLE},cta,0,1,1,50,3,pair1,4,4\n")
    assert run(["table", "ooc", "--results", str(tmp_path)]) == 1
    assert "more direct successes than successes" in capsys.readouterr().err


def test_changed_settings_are_named(tmp_path, capsys):
    settings = {"subgoal_steps": 5, "batch_size": 256}
    Results(tmp_path).add(record(settings=settings), rows())
    text = printed(capsys, tmp_path, "main", "--ours", "--no-intervals", "--format", "markdown")
    assert f"cta on {PUZZLE}: settings differ from the paper's (subgoal_steps)" in text


def test_the_interquartile_mean_by_hand():
    # Of 0, 1, …, 7 (%) the middle half is 2, 3, 4, 5.
    found = summarise([[0.00, 0.01, 0.02, 0.03], [0.04, 0.05, 0.06, 0.07]])
    assert found.iqm == pytest.approx(3.5)
    assert found.mean == pytest.approx(3.5) and found.std == pytest.approx(2.0)
    assert found.mean_interval is not None and found.mean_interval[0] < 3.5 < found.mean_interval[1]
    assert summarise([[0.5, 0.6]]).mean_interval is None


def test_the_interval_of_a_difference_is_that_of_welchs_test():
    ours, theirs = [76.0, 78, 80, 82], [81.0, 83, 84, 84, 85, 87, 80, 88]
    found = difference_interval(*((fmean(scores), pstdev(scores), len(scores)) for scores in (ours, theirs)))
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert found == pytest.approx((fmean(ours) - fmean(theirs), expected.low, expected.high))
    assert difference_interval((80, 0, 4), (78, 0, 8)) == (2, 2, 2)


def test_blocks_of_a_document(folder, tmp_path, capsys):
    document = tmp_path / "README.md"
    document.write_text("before\n<!-- table: main --ours --agents cta -->\nold\n<!-- /table -->\nafter\n")
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 1
    assert run(["table", "--update", str(document), "--results", str(folder)]) == 0
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert f"| {PUZZLE} | cta | 84 ± 3 | 79.0 ± 2.2 |" in text
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 0
    document.write_text(text.replace("79.0", "84.0"))
    capsys.readouterr()
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 1
    assert "not what the results say" in capsys.readouterr().out


def test_a_mark_without_end_gets_a_line(tmp_path, capsys):
    (tmp_path / "x.md").write_text("<!-- table: main -->\n")
    assert run(["table", "--update", str(tmp_path / "x.md")]) == 1
    assert "has no end" in capsys.readouterr().err


@pytest.mark.parametrize("document", ["README.md", "docs/reproduction.md"])
def test_our_documents_say_what_our_results_say(document):
    path = ROOT / document
    fresh, count = filled(path.read_text(), filler(path, ROOT / "results", draw=False))
    assert fresh == path.read_text()
    assert count == len(MARK.findall(fresh))


def test_a_picture_in_a_document_follows_the_results(folder, tmp_path, capsys):
    document = tmp_path / "README.md"
    document.write_text("<!-- curves: curves.png -->\n<!-- /curves -->\n")
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 1
    assert run(["table", "--update", str(document), "--results", str(folder)]) == 0
    assert "![learning curves](curves.png)\n" in document.read_text()
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 0
    # One episode more is another picture, though the text would be the same.
    other = tmp_path / "other"
    Results(other).add(record(), [row._replace(successes=39 + row.seed) for row in rows()])
    assert run(["table", "--check", str(document), "--results", str(other)]) == 1
    assert run(["table", "--update", str(document), "--results", str(other)]) == 0
    assert run(["table", "--check", str(document), "--results", str(other)]) == 0


def test_without_results_documents_say_so(tmp_path, capsys):
    document = tmp_path / "README.md"
    (tmp_path / "none").mkdir()
    document.write_text("<!-- table: main --ours -->\n<!-- /table -->\n<!-- curves: c.png -->\n<!-- /curves -->\n")
    assert run(["table", "--update", str(document), "--results", str(tmp_path / "none")]) == 0
    assert document.read_text().count(NOTHING) == 2 and not (tmp_path / "c.png").exists()
    assert run(["table", "--check", str(document), "--results", str(tmp_path / "none")]) == 0
    for words in (["main", "--ours"], ["ooc", "--ours"], ["main", "--ours", "--format", "latex"]):
        assert run(["table", *words, "--results", str(tmp_path / "none")]) == 0
    capsys.readouterr()
    assert run(["results", "list", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == NOTHING
    assert run(["table", "--curves", str(tmp_path / "c.png"), "--results", str(tmp_path / "none")]) == 1
    assert "no results to draw" in capsys.readouterr().err


AT_80 = {
    "main": ["dataset", "agent", "paper", "ours", "seeds", "state"],
    "hierarchy": ["dataset", "agent", "paper", "ours", "95% CI", "seeds", "state"],
}


@pytest.mark.parametrize("name", AT_80)
def test_a_narrow_terminal_keeps_the_numbers_whole_and_names_what_it_leaves_out(folder, capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    _, header, rule, *lines = printed(capsys, folder, name, "--ours").splitlines()
    assert re.split(r"  +", header.strip()) == AT_80[name] and len(rule) <= 80
    (mine,) = [line for line in lines if " cta " in line and line.startswith(PUZZLE)]
    assert re.split(r"  +", mine.strip())[2:4] == ["84 ± 3", "79.0 ± 2.2"] and mine.strip().endswith("complete")
    (said,) = [line for line in lines if line.startswith("no room for: ")]
    assert "ours − paper (95% CI), IQM (95% CI)" in said and "steps, episodes, data; a wider terminal" in said
    assert "--format markdown" in said


def test_columns_leave_a_terminal_the_least_important_first(folder, capsys, monkeypatch):
    counts = []
    for width in (200, 160, 120, 100, 80, 40):
        monkeypatch.setenv("COLUMNS", str(width))
        text = printed(capsys, folder, "main", "--ours", "--agents", "cta")
        counts.append(len(re.split(r"  +", text.splitlines()[1].strip())))
        assert "79.0 ± 2.2" in text and (counts[-1] == 12) == ("no room for" not in text)
    assert counts[0] == 12 and counts[-1] == 5 and counts == sorted(counts, reverse=True)


def test_held_out_pairs_fit_80_columns_with_success_below_direct_success(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, folder, "ooc", "--no-intervals")
    table = text[: text.index("no room for")].splitlines()
    assert max(map(len, table)) <= 80
    at = next(number for number, line in enumerate(table) if "65.0 ± 2.2" in line)
    assert table[at].split()[:3] == [PUZZLE, "pair1", "cta"] and table[at + 1].strip().endswith("(93.0 ± 2.2)")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["main", "--agents", "ctaa"], "--agents ctaa: not in the table main: did you mean cta"),
        (["main", "--datasets", "scene"], "--datasets scene: not in the table main: did you mean scene-play-v0?"),
        (["ooc", "--agents", "zzz"], "--agents zzz: not in the table ooc: it has cta, "),
        (["maze", "--datasets", "desk-play-v0", "--ours"], "--datasets desk-play-v0: not in the table maze: "),
    ],
)
def test_mistyped_names_get_a_line_with_the_nearest(folder, capsys, words, complaint):
    assert run(["table", *words, "--results", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert complaint in err and not out and err.count("\n") == 1


def test_a_mistyped_folder_is_not_an_empty_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["table", "main", "--results", "nowhere"], ["results", "list", "nowhere"], ["results", "list"]):
        assert run(words) == 1
        assert ": no such folder\n" in capsys.readouterr().err
    # Who has no results of their own still has the paper's.
    assert run(["table", "main", "--no-intervals"]) == 0
    assert "scene-play-v0" in capsys.readouterr().out


def test_results_of_no_table_of_the_paper_are_not_called_none(tmp_path, capsys):
    desk = [row._replace(dataset="desk-play-v0") for row in rows(agent="gcbc")]
    Results(tmp_path).add(empty("desk-play-v0", "gcbc"), desk)
    assert run(["table", "main", "--ours", "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"are in no table of the paper: `cta results list {tmp_path}` shows them" in said
    # Nothing of ours in one table is no mistake if another has it.
    Results(tmp_path).add(record(), rows())
    assert run(["table", "maze", "--ours", "--results", str(tmp_path)]) == 0


def noisy(*worlds):
    return [f"{world}-noisy-v0" for world in worlds]


FIVE = noisy("cube-single", "cube-double", "scene", "puzzle-3x3", "puzzle-4x4")
REST = noisy("cube-triple", "puzzle-4x5", "puzzle-4x6")


def averages(capsys, folder):
    text = printed(capsys, folder, "noisy", "--ours", "--agents", "cta", "--format", "csv")
    lines = {line["dataset"]: line for line in csv.DictReader(io.StringIO(text))}
    return {name: (line["ours"], line["state"]) for name, line in lines.items() if name.startswith("average")}


def test_averages_are_over_all_datasets_or_not_there(tmp_path, capsys):
    """The one the paper prints for noisy data fits eight datasets, of which it shows five: both are made."""
    for number, dataset in enumerate(FIVE[:-1]):
        Results(tmp_path).add(record(dataset=dataset), rows(dataset=dataset, wins=10 + number))
    assert averages(capsys, tmp_path) == {}
    Results(tmp_path).add(record(dataset=FIVE[-1], seeds=[0]), rows(dataset=FIVE[-1], seeds=[0], wins=19))
    five = 2 * fmean([10, 11, 12, 13, 19])
    assert averages(capsys, tmp_path) == {"average": (f"{five:.1f}", "incomplete")}
    for dataset in REST:
        Results(tmp_path).add(record(dataset=dataset), rows(dataset=dataset, wins=41))
    eight = (5 * five + 3 * 82) / 8
    assert averages(capsys, tmp_path) == {
        "average": (f"{five:.1f}", "incomplete"),
        "average of all eight": (f"{eight:.1f}", "incomplete"),
    }


def test_half_a_seed_does_not_count_among_whole_ones(tmp_path, capsys):
    """A fifth seed with one checkpoint, and in it one pair that is missing."""
    (tmp_path / "ooc").mkdir()
    path = tmp_path / "ooc" / f"{PUZZLE}.cta.csv"
    path.write_text(OOC)
    whole = printed(capsys, tmp_path, "ooc", "--ours", "--format", "csv")
    extra = [f"{PUZZLE},cta,4,800000,{pair},50,50,pair{pair},50,50\n" for pair in range(1, 5)]
    path.write_text(OOC + "".join(extra))
    assert printed(capsys, tmp_path, "ooc", "--ours", "--format", "csv") == whole
    # With one other it is something to look at: for the pairs that it has, and over all.
    header, *others = OOC.splitlines(keepends=True)
    path.write_text(header + "".join([*(line for line in others if ",cta,0," in line), *extra]))
    lines = list(csv.DictReader(io.StringIO(printed(capsys, tmp_path, "ooc", "--ours", "--format", "csv"))))
    assert [(line["state"], line["seeds"]) for line in lines] == [("incomplete", "2 (0, 4)")] * 6
    assert [line["ours direct (success)"][:4] for line in lines][3:] == ["84.0", "70.0", "80.0"]


def test_pictures_are_drawn(folder, tmp_path, capsys):
    curves, pairs = tmp_path / "curves.png", tmp_path / "pairs.png"
    assert run(["table", "--curves", str(curves), "--pairs", str(pairs), "--results", str(folder)]) == 0
    assert all(target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for target in (curves, pairs))
    assert run(["table", "--pairs", str(pairs), "--results", str(folder), "--agents", "hiql"]) == 1
    assert "no held-out pairs to draw" in capsys.readouterr().err


def test_bars_of_pairs_show_the_numbers_of_the_table(folder, tmp_path, monkeypatch, capsys):
    """Heights of the solid and of the outlined bars, ours and the paper's."""
    drawn = []
    monkeypatch.setattr(bars, "save", lambda figure, path, cells: drawn.append(figure))
    bars.draw_pairs(read_pairs(folder / "ooc"), tmp_path / "pairs.png")
    (axis,) = drawn[0].axes
    heights = {round(bar.get_height(), 1) for bar in axis.patches}
    text = printed(capsys, folder, "ooc", "--ours", "--format", "csv")
    table = list(csv.DictReader(io.StringIO(text)))
    assert len(table) == 6
    for line in table:
        for column in ("paper direct (success)", "ours direct (success)"):
            direct, success = re.findall(r"([\d.]+) ±", line[column])
            assert {float(direct), float(success)} <= heights
    assert [label.get_text().split("\n")[0] for label in axis.get_xticklabels()] == [line["pair"] for line in table]


def test_a_picture_of_pairs_follows_the_results(folder, tmp_path):
    document, other = tmp_path / "README.md", tmp_path / "other"
    document.write_text("<!-- pairs: pairs.png -->\n<!-- /pairs -->\n")
    assert run(["table", "--update", str(document), "--results", str(folder)]) == 0
    assert "![held-out pairs](pairs.png)\n" in document.read_text()
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 0
    (other / "ooc").mkdir(parents=True)
    (other / "ooc" / f"{PUZZLE}.cta.csv").write_text(OOC.replace(",45,pair1", ",44,pair1"))
    assert run(["table", "--check", str(document), "--results", str(other)]) == 1


def test_every_stored_result_can_be_read_and_has_its_record():
    results = Results(ROOT / "results")
    for cell in [*results.cells(), *results.held_out().cells()]:
        trained = {seed for entry in cell.record["training"] for seed in entry["seeds"]}
        assert set(cell.seeds) <= trained
        for entry in cell.record["training"]:
            assert entry["commit"] and entry["versions"]["mujoco"] and entry["hardware"]["device"]
            assert entry["data"]["fingerprint"] and entry["command"].startswith("cta train")
