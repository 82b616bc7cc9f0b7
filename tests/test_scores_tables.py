"""Tables from constructed files, in every format, and the blocks of documents."""

import csv
import io
import re
from pathlib import Path
from statistics import fmean

import pytest
from rich.console import Console

from cta.cli import run
from cta.cli.table import MARK, filler, refill
from cta.io import text_tables
from cta.report import score_figures
from cta.scores.paper import TABLES, paper_scores
from cta.scores.schema import CellKey
from cta.scores.store import Scores
from cta.scores.tables import NOTHING
from test_scores_store import KEY, PUZZLE, cell_of, record, rows

ROOT = Path(__file__).parent.parent
OOC = "dataset,agent,seed,step,task,episodes,successes,pair,direct,lenient\n" + "".join(
    f"{PUZZLE},cta,{seed},{step},{pair},50,{45 + seed},pair{pair},{30 + pair + seed},{40 + seed}\n"
    for seed in range(4)
    for step in (800_000, 900_000, 1_000_000)
    for pair in range(1, 6)
)
FOUR = [row._replace(successes=38 + row.seed) for row in rows(seeds=range(4))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """CTA with four seeds, one baseline with two, half scored, whose weights were rounded; held-out pairs."""
    path = tmp_path_factory.mktemp("results")
    Scores(path).add(KEY, record(seeds=range(4)), FOUR)
    half, other = record(seeds=[0, 1]), KEY._replace(agent="hiql-analogy")
    half["scoring"][0]["weights"] = "float16"
    Scores(path).add(other, half, rows(seeds=[0, 1], points=[800_000], key=other, wins=25))
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
    assert (cta["seeds"], cta["seed numbers"], cta["steps"], cta["episodes"]) == (
        "4 of 8",
        "0–3",
        "800k, 900k, 1M",
        "50",
    )
    assert cta["data"] == "generated, seed 0, MuJoCo 3.3.7"
    # Student's: 79 ± 3.182 · √(20/3) / 2.
    assert cta["95% CI"] == "[74.9, 83.1]" and cta["difference (95%)"] == "-5.0 [-9.0, -1.0]"
    assert lines["hiql-analogy"]["seeds"] == "0 of 8, 2 in part"


def test_readers_get_six_columns(folder, capsys):
    for name in TABLES:
        text = printed(capsys, folder, name, "--agents", "cta", "--format", "markdown")
        assert text.splitlines()[0].count("|") == 7


def test_a_table_over_four_seeds_is_complete_with_four(folder, capsys):
    text = printed(capsys, folder, "gcb", "--ours", "--format", "csv")
    assert [line["seeds"] for line in csv.DictReader(io.StringIO(text))] == ["4 of 4"]


def test_without_ours_the_whole_table_of_the_paper_is_there(folder, capsys):
    text = printed(capsys, folder, "main", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(text)))) == len(paper_scores("main")) == 108


@pytest.mark.parametrize("name", TABLES)
def test_every_table_in_every_format(folder, capsys, name):
    for kind in ("terminal", "markdown", "latex", "csv"):
        text = printed(capsys, folder, name, "--agents", "cta", "--format", kind)
        assert "cta" in text
        if kind == "latex":
            code = "".join(line for line in text.splitlines() if not line.startswith("%"))
            assert code.startswith("\\begin{tabular}") and code.count("\\\\") >= 2 and "±" not in code
        if kind == "markdown":
            widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
            assert len(widths) == 1


def test_what_is_in_part_and_rounded_weights_are_marked_in_every_format(folder, capsys):
    for kind in ("terminal", "markdown", "latex", "csv"):
        text = printed(capsys, folder, "main", "--ours", "--format", kind)
        assert "2 in part" in text
        assert kind == "csv" or f"no result yet: hiql-analogy on {PUZZLE}, missing seed 0 at 900k, 1M; seed 1" in text
        assert kind == "csv" or "rounded to float16" in text


def test_held_out_pairs(folder, capsys):
    text = printed(capsys, folder, "ooc", "--ours", "--format", "csv")
    lines = {line["pair"]: line for line in csv.DictReader(io.StringIO(text))}
    assert list(lines) == ["pair1", "pair2", "pair3", "pair4", "pair5", "all"]
    # Pair 1: 31…34 of 50 direct, 45…48 successes.
    assert lines["pair1"]["ours"] == "65.0±2.2 (93.0±2.2)"
    assert lines["all"]["ours"] == "69.0±2.2 (93.0±2.2)"
    assert lines["all"]["paper"] == "80±8 (100±1)"
    assert lines["all"]["seeds"] == "4 of 4"


def test_more_direct_successes_than_successes_are_refused(tmp_path, capsys):
    (tmp_path / "ooc").mkdir()
    (tmp_path / "ooc" / "x.csv").write_text(OOC.splitlines()[0] + f"\n{PUZZLE},cta,0,1,1,50,3,pair1,4,4\n")
    assert run(["table", "ooc", "--results", str(tmp_path)]) == 1
    assert "more direct successes than successes" in capsys.readouterr().err


def test_changed_settings_are_named(tmp_path, capsys):
    settings = {"subgoal_steps": 5, "batch_size": 256}
    Scores(tmp_path).add(KEY, record(settings=settings), rows())
    text = printed(capsys, tmp_path, "main", "--ours", "--format", "markdown")
    assert f"cta on {PUZZLE}: settings differ from the paper's (subgoal_steps)" in text


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
    same, count = refill(path, filler(path, Scores(ROOT / "results"), draw=False), write=False)
    assert same and count == len(MARK.findall(path.read_text()))


def test_a_picture_in_a_document_follows_the_results(folder, tmp_path, capsys):
    document = tmp_path / "README.md"
    document.write_text("<!-- curves: curves.png -->\n<!-- /curves -->\n")
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 1
    assert run(["table", "--update", str(document), "--results", str(folder)]) == 0
    assert "![learning curves](curves.png)\n" in document.read_text()
    assert run(["table", "--check", str(document), "--results", str(folder)]) == 0
    # One episode more is another picture, though the text would be the same.
    other = tmp_path / "other"
    Scores(other).add(KEY, record(), [row._replace(successes=39 + row.seed) for row in FOUR])
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


def on_a_terminal(monkeypatch, capsys, folder, width, *words):
    """The lines of the table on a terminal of this width, without colours."""
    made = {"force_terminal": True, "width": width, "highlight": False}
    monkeypatch.setattr(text_tables, "Console", lambda **_: Console(**made))
    return re.sub(r"\x1b\[[0-9;]*m", "", printed(capsys, folder, *words)).splitlines()


def test_columns_leave_a_terminal_the_least_important_first(folder, capsys, monkeypatch):
    """Down to 80 columns all six are there; what is left out is named, and no number is ever cut."""
    for width, left_out in (
        (200, ""),
        (80, ""),
        (70, "difference (95%)"),
        (50, "difference (95%), seeds"),
        (20, "difference"),
    ):
        with monkeypatch.context() as patch:
            lines = on_a_terminal(patch, capsys, folder, width, "main", "--ours", "--agents", "cta")
        (mine,) = [line for line in lines if " cta " in line]
        assert re.split(r"  +", mine.strip())[2:4] == ["84 ± 3", "79.0 ± 2.2"] and "…" not in "".join(lines)
        assert (width < 50) or len(mine) <= width
        assert any(line.startswith(f"no room for: {left_out}") for line in lines) == bool(left_out)


def test_held_out_pairs_on_80_columns_keep_ours(folder, capsys, monkeypatch):
    lines = on_a_terminal(monkeypatch, capsys, folder, 80, "ooc", "--ours")
    (mine,) = [line for line in lines if " pair1 " in line]
    assert "  65.0±2.2 (93.0±2.2)" in mine and len(mine) <= 80
    lines = on_a_terminal(monkeypatch, capsys, folder, 74, "ooc", "--ours")
    (mine,) = [line for line in lines if " pair1 " in line]
    assert mine.strip().endswith("65.0±2.2 (93.0±2.2)") and len(mine) <= 74 and "no room for: seeds" in lines


def test_a_pipe_gets_the_full_text(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = printed(capsys, folder, "main", "--ours")
    assert "no room for" not in text and "-5.0 [-9.0, -1.0]" in text


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
    assert run(["table", "main"]) == 0
    assert "scene-play-v0" in capsys.readouterr().out


def test_results_of_no_table_of_the_paper_are_not_called_none(tmp_path, capsys):
    desk = CellKey("desk-play-v0", "gcbc")
    Scores(tmp_path).add(desk, {}, rows(key=desk))
    assert run(["table", "main", "--ours", "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"are in no table of the paper: `cta results list {tmp_path}` shows them" in said
    # Nothing of ours in one table is no mistake if another has it.
    Scores(tmp_path).add(KEY, record(), rows())
    assert run(["table", "maze", "--ours", "--results", str(tmp_path)]) == 0


def noisy(*worlds):
    return [f"{world}-noisy-v0" for world in worlds]


FIVE = noisy("cube-single", "cube-double", "scene", "puzzle-3x3", "puzzle-4x4")
REST = noisy("cube-triple", "puzzle-4x5", "puzzle-4x6")


def averages(capsys, folder):
    text = printed(capsys, folder, "noisy", "--ours", "--agents", "cta", "--format", "csv")
    lines = {line["dataset"]: line for line in csv.DictReader(io.StringIO(text))}
    return {name: (line["ours"], line["seeds"]) for name, line in lines.items() if name.startswith("average")}


def test_averages_are_over_all_datasets_or_not_there(tmp_path, capsys):
    """The one the paper prints for noisy data fits eight datasets, of which it shows five: both are made."""

    def add(dataset, seeds=range(8), **given):
        key = CellKey(dataset, "cta")
        Scores(tmp_path).add(key, record(dataset=dataset, seeds=seeds), rows(key=key, seeds=seeds, **given))

    for number, dataset in enumerate(FIVE[:-1]):
        add(dataset, wins=10 + number)
    assert averages(capsys, tmp_path) == {}
    add(FIVE[-1], seeds=[0], wins=19)
    five = 2 * fmean([10, 11, 12, 13, 19])
    assert averages(capsys, tmp_path) == {"average": (f"{five:.1f}", "1 of 8")}
    for dataset in REST:
        add(dataset, wins=41)
    eight = (5 * five + 3 * 82) / 8
    assert averages(capsys, tmp_path) == {
        "average": (f"{five:.1f}", "1 of 8"),
        "average of all eight": (f"{eight:.1f}", "1 of 8"),
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
    # Alone it is something to look at: for the pairs that it has, and over all.
    path.write_text(OOC.splitlines(keepends=True)[0] + "".join(extra))
    lines = list(csv.DictReader(io.StringIO(printed(capsys, tmp_path, "ooc", "--ours", "--format", "csv"))))
    assert [line["seeds"] for line in lines][-1] == "0 of 4, 1 in part"
    assert [line["ours"] for line in lines][3:] == ["100.0 (100.0)", "–", "100.0 (100.0)"]


def test_a_figure_of_another_kind_gets_a_line(folder, tmp_path, capsys):
    assert run(["table", "--curves", str(tmp_path / "c.txt"), "--results", str(folder)]) == 1
    assert "figures are written as .png, .pdf, .svg" in capsys.readouterr().err


def test_pictures_are_drawn(folder, tmp_path, capsys):
    curves, pairs = tmp_path / "curves.png", tmp_path / "pairs.png"
    assert run(["table", "--curves", str(curves), "--pairs", str(pairs), "--results", str(folder)]) == 0
    assert all(target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for target in (curves, pairs))
    assert run(["table", "--pairs", str(pairs), "--results", str(folder), "--agents", "hiql"]) == 1
    assert "no held-out pairs to draw" in capsys.readouterr().err


def test_points_of_fewer_episodes_are_hollow(tmp_path, monkeypatch):
    """The early points of our curves have 15 episodes per task, the last three 50."""
    drawn = []
    monkeypatch.setattr(score_figures, "save_figure", lambda figure, path, **_: drawn.append(figure))
    cells = score_figures.drawn_cells("curves", Scores(Path(__file__).parents[1] / "results"))
    score_figures.draw("curves", cells, tmp_path / "curves.png")
    for axis in drawn[0].axes:
        hollow = [line for line in axis.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "white"]
        assert {step for line in hollow for step in line.get_xdata()} == {
            50e3,
            150e3,
            *range(100_000, 700_001, 100_000),
        }


@pytest.mark.parametrize("agents", [1, 9])
def test_a_long_legend_of_composition_curves_takes_no_room_from_them(agents, tmp_path, monkeypatch):
    folder = Path(__file__).parents[1] / "docs" / "measurements" / "beyond-4x4-small-again"
    cells = score_figures.drawn_cells("presses", Scores(folder))[:agents]
    drawn = []
    monkeypatch.setattr(score_figures, "save_figure", lambda figure, path, **_: drawn.append(figure))
    score_figures.draw("presses", cells, tmp_path / "curves.png")
    (axis,), figure = drawn[0].axes, drawn[0]
    figure.draw_without_rendering()  # places the texts
    assert len(axis.get_legend().get_texts()) == agents
    assert 1.2 < axis.get_position().height * figure.get_figheight() < 1.9  # inches
    assert axis.get_legend().get_window_extent().y1 < axis.xaxis.label.get_window_extent().y0


def test_bars_of_pairs_show_the_numbers_of_the_table(folder, tmp_path, monkeypatch, capsys):
    """Heights of the solid and of the outlined bars, ours and the paper's."""
    drawn = []
    monkeypatch.setattr(score_figures, "save_figure", lambda figure, path, **_: drawn.append(figure))
    score_figures.draw("pairs", score_figures.drawn_cells("pairs", Scores(folder)), tmp_path / "pairs.png")
    (axis,) = drawn[0].axes
    heights = {round(bar.get_height(), 1) for bar in axis.patches}
    text = printed(capsys, folder, "ooc", "--ours", "--format", "csv")
    table = list(csv.DictReader(io.StringIO(text)))
    assert len(table) == 6
    for line in table:
        for column in ("paper", "ours"):
            direct, success = re.findall(r"([\d.]+)±", line[column])
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
    for cell in Scores(ROOT / "results").cells():
        trained = {seed for entry in cell.record["training"] for seed in entry["seeds"]}
        assert set(cell.seeds) <= trained
        for entry in cell.record["training"]:
            assert entry["commit"] and entry["versions"]["mujoco"] and entry["hardware"]["device"]
            assert entry["data"]["fingerprint"] and entry["command"].startswith("cta train")


def test_a_figure_says_how_many_seeds_it_shows():
    assert score_figures._label(cell_of(rows(seeds=range(4)))) == "cta (4 of 8 seeds)"
    assert (
        score_figures._label(cell_of(rows(seeds=range(4), episodes=49, wins=9)))
        == "cta (4 seeds, short of the protocol)"
    )
