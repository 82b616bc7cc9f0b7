"""LeRobot folders, written here in the layout of format v3: several episodes per file, several files per chunk."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from cta import CtaError, Run, load_policy
from cta.cli import run as cta
from cta.data.other_formats import read_lerobot

pa = pytest.importorskip("pyarrow")
LENGTHS = (5, 9, 3, 7, 6, 4)
LIMITS = {"min": [-2.0, 0.0], "max": [2.0, 90.0]}


def column(values, size, fixed=True):
    flat = pa.array(np.asarray(values, np.float32).reshape(-1))
    if fixed:
        return pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32) * size), flat)


def write(folder, *, change=None, stats=True, fixed=True, leave_out=(), version="v3.0"):
    """Six episodes in three files of two chunks; `change` edits the arrays before they are written."""
    import pyarrow.parquet as parquet

    rng, rows = np.random.default_rng(0), sum(LENGTHS)
    names = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    arrays = {
        "observation.state": rng.standard_normal((rows, 3)) * [1, 1e4, 10],
        "action": rng.uniform([-2, 0], [2, 90], (rows, 2)),
        "timestamp": np.concatenate([np.arange(n) / 30 for n in LENGTHS]).astype(np.float32),
        "frame_index": np.concatenate([np.arange(n) for n in LENGTHS]),
        "episode_index": names,
        "index": np.arange(rows),
        "task_index": np.zeros(rows, np.int64),
    }
    if change is not None:
        change(arrays)
    sizes = {"observation.state": 3, "action": 2}
    features = {
        name: {"dtype": str(values.dtype), "shape": [sizes.get(name, 1)], "names": None}
        for name, values in arrays.items()
    }
    features["observation.images.top"] = {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "c"]}
    for name in leave_out:
        features.pop(name), arrays.pop(name)
    cuts = np.cumsum([0, LENGTHS[0] + LENGTHS[1], LENGTHS[2] + LENGTHS[3], LENGTHS[4] + LENGTHS[5]])
    for i, place in enumerate(("chunk-000/file-000", "chunk-000/file-001", "chunk-001/file-000")):
        part = {name: values[cuts[i] : cuts[i + 1]] for name, values in arrays.items()}
        table = {n: column(v, sizes[n], fixed) if n in sizes else pa.array(v) for n, v in part.items()}
        path = folder / "data" / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(table), path)
    info = {
        "codebase_version": version, "robot_type": "so100", "total_episodes": len(LENGTHS), "total_frames": rows,
        "total_tasks": 1, "chunks_size": 1000, "fps": 30, "splits": {"train": f"0:{len(LENGTHS)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "features": features,
    }  # fmt: skip
    (folder / "meta").mkdir()
    (folder / "meta" / "info.json").write_text(json.dumps(info, indent=4))
    if stats:
        (folder / "meta" / "stats.json").write_text(json.dumps({"action": LIMITS | {"count": [rows]}}))
    return arrays


@pytest.mark.parametrize("fixed", [True, False])
def test_a_folder_becomes_trajectories(tmp_path, capfd, fixed):
    arrays = write(tmp_path / "cube", fixed=fixed)
    data = read_lerobot(tmp_path / "cube")
    assert data.name == "lerobot-cube" and (data.episode_ends - data.episode_starts + 1).tolist() == [*LENGTHS]
    np.testing.assert_array_equal(data.observations, arrays["observation.state"].astype(np.float32))
    np.testing.assert_array_equal(data.actions, arrays["action"].astype(np.float32))
    assert data.bounds.low.tolist() == LIMITS["min"] and data.bounds.high.tolist() == LIMITS["max"]
    assert capfd.readouterr().err.strip().endswith("not used: observation.images.top")
    assert cta(["data", "info", f"lerobot:{tmp_path / 'cube'}"]) == 0
    said = capfd.readouterr().out
    assert "6 episodes of 3 to 9 rows" in said and "bounds of actions: -2 0 to 2 90" in said


def test_a_folder_of_the_packages_own():
    """Written by lerobot 0.4.4 from these numbers: `LeRobotDataset.create`, `add_frame`, `save_episode`, `finalize`."""
    data, rng = read_lerobot(Path(__file__).parent / "data" / "lerobot-0.4.4"), np.random.default_rng(0)
    rows = [(rng.normal(size=3), rng.uniform([-2, 0], [2, 90])) for _ in range(5 + 9 + 3 + 7)]
    np.testing.assert_array_equal(data.observations, np.float32([seen for seen, _ in rows]))
    np.testing.assert_array_equal(data.actions, np.float32([taken for _, taken in rows]))
    assert (data.episode_ends - data.episode_starts + 1).tolist() == [5, 9, 3, 7]
    assert data.bounds.low.tolist() == data.actions.min(axis=0).tolist()
    assert data.bounds.high.tolist() == data.actions.max(axis=0).tolist()


def test_the_example_writes_what_the_package_writes(tmp_path):
    """The same files, and in the data the same columns of the same types."""
    import runpy

    import pyarrow.parquet as parquet

    write_folder = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "lerobot_desk.py"))["write"]
    rng = np.random.default_rng(0)
    write_folder(tmp_path / "mine", rng.random((12, 3), np.float32), rng.random((12, 2), np.float32), rows=4)
    theirs = Path(__file__).parent / "data" / "lerobot-0.4.4"
    both = (tmp_path / "mine", theirs)
    mine_files, their_files = (sorted(path.relative_to(root) for path in root.rglob("*.*")) for root in both)
    assert mine_files == their_files
    table = "data/chunk-000/file-000.parquet"
    schemas = [parquet.read_schema(root / table).remove_metadata() for root in both]
    assert schemas[0] == schemas[1]
    infos = [json.loads((root / "meta" / "info.json").read_text()) for root in both]
    assert infos[0].keys() == infos[1].keys() and infos[0]["features"].keys() == infos[1]["features"].keys()


def test_a_folder_is_trained_on_and_found_again(tmp_path, monkeypatch):
    write(tmp_path / "cube")
    monkeypatch.chdir(tmp_path)
    small = ["--steps", "4", "--eval-interval", "4", "--agent.batch-size", "8", "--agent.hidden", "8"]
    words = ["--dataset", "lerobot:cube", "--agent", "gcbc", "--run-dir", "runs/a", "--normalise-observations", *small]
    assert cta(["train", *words]) == 0
    policy = load_policy("runs/a")
    assert policy.bounds.high.tolist() == LIMITS["max"] and policy.units.normalisation.scale[1] > 1000
    monkeypatch.chdir(tmp_path / "runs")
    run = Run("a")
    assert run.config.dataset_name == run.open_data()[0] == "lerobot-cube"
    assert cta(["resume", "a", "--steps", "6"]) == 0


def test_bounds_of_the_command_line_and_of_actions_that_never_change(tmp_path):
    write(tmp_path / "bare", stats=False, change=lambda a: a["action"].__imul__(0))
    assert read_lerobot(tmp_path / "bare").bounds is None
    assert read_lerobot(tmp_path / "bare", action_bounds=(-5, 5)).bounds.high.tolist() == [5, 5]
    still = {"action": {"min": [0.0, 0.0], "max": [0.0, 1.0]}}
    (tmp_path / "bare" / "meta" / "stats.json").write_text(json.dumps(still))
    assert read_lerobot(tmp_path / "bare").bounds.low.tolist() == [-1, 0]


def replace_column(folder, name, values, files="*"):
    """Another column in the files of a folder: what `values` gives of a table's number of rows."""
    import pyarrow.parquet as parquet

    for path in sorted((folder / "data").rglob(f"{files}.parquet")):
        table = parquet.read_table(path)
        place = table.column_names.index(name)
        parquet.write_table(table.set_column(place, name, pa.array(values(len(table)))), path)


def test_columns_of_one_number_and_whole_numbers(tmp_path):
    """A feature of shape (1,) is no list in LeRobot's files; ticks of an encoder are whole numbers."""
    write(tmp_path / "cube", stats=False)
    replace_column(tmp_path / "cube", "action", lambda rows: np.linspace(-1, 1, rows))
    replace_column(tmp_path / "cube", "observation.state", lambda rows: [[row, 7 * row] for row in range(rows)])
    data = read_lerobot(tmp_path / "cube")
    assert data.actions.shape == (sum(LENGTHS), 1) and data.actions[13, 0] == 1
    assert data.observations.dtype == np.float32 and data.observations[13].tolist() == [13, 91]


def put(name, row, value):
    return lambda arrays: arrays[name].__setitem__(row, value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"change": put("action", (7, 1), 91.0)},
            "an action is 91 at row 7, column 1, outside its stated bounds [0, 90]",
        ),
        ({"change": put("observation.state", (4, 2), np.nan)}, "observations has nan at row 4, column 2"),
        ({"change": put("action", (4, 0), np.nan)}, "actions has nan at row 4, column 0"),
        ({"change": put("episode_index", slice(20, 22), 0)}, "episode_index falls from 3 to 0 at row 20"),
        ({"change": put("frame_index", 6, 4)}, "frame_index is 4 at row 6, not 1"),
        ({"leave_out": ["action"]}, "it has no action; its features are observation.state, timestamp"),
        ({"leave_out": ["observation.state"]}, "it has no observation.state"),
        ({"version": "v2.1"}, "format v2.1, this reads v3"),
        ({"stats": False}, "actions must lie in [-1, 1]"),
    ],
)
def test_bad_folders_are_one_line(tmp_path, capfd, options, complaint):
    write(tmp_path / "bad", **options)
    assert cta(["data", "info", f"lerobot:{tmp_path / 'bad'}"]) == 1
    *_, said = capfd.readouterr().err.strip().splitlines()
    assert complaint in said, said


def test_what_is_no_lerobot_dataset_is_one_line(tmp_path):
    import pyarrow.parquet as parquet

    (tmp_path / "empty").mkdir()
    with pytest.raises(CtaError, match=r"is no LeRobot dataset: it has no meta/info\.json"):
        read_lerobot(tmp_path / "empty")
    write(tmp_path / "cube")
    cases = [
        (lambda rows: [[0.0, 1.0]] * (rows - 1) + [[0.0]], "action has rows of different lengths"),
        (lambda rows: ["a"] * rows, "action is no list of numbers"),
        (lambda rows: [["a", "b"]] * rows, "action is no list of numbers"),
        (lambda rows: [[[0.0], [1.0]]] * rows, "action is no list of numbers"),
    ]
    for number, (values, complaint) in enumerate(cases):
        write(tmp_path / str(number))
        replace_column(tmp_path / str(number), "action", values, "file-001")
        with pytest.raises(CtaError, match=rf"file-001\.parquet: {complaint}"):
            read_lerobot(tmp_path / str(number))
    write(tmp_path / "part")
    (tmp_path / "part" / "data" / "chunk-000" / "file-001.parquet").unlink()
    with pytest.raises(CtaError, match=r"its files have 24 frames, meta/info\.json says 34: is all of it here\?"):
        read_lerobot(tmp_path / "part")
    for path in (tmp_path / "part" / "data").rglob("*.parquet"):
        parquet.write_table(parquet.read_table(path).slice(0, 0), path)
    with pytest.raises(CtaError, match="its files have 0 frames"):
        read_lerobot(tmp_path / "part")
    first = tmp_path / "cube" / "data" / "chunk-000" / "file-000.parquet"
    table = parquet.read_table(first)
    parquet.write_table(table.drop_columns(["action"]), first)
    with pytest.raises(CtaError, match=r"file-000\.parquet: it has no column action$"):
        read_lerobot(tmp_path / "cube")
    first.write_bytes(b"PAR1 broken")
    with pytest.raises(CtaError, match=r"file-000\.parquet: cannot be read"):
        read_lerobot(tmp_path / "cube")
    for file in Path(tmp_path / "cube" / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(CtaError, match="there is no data/chunk"):
        read_lerobot(tmp_path / "cube")
    (tmp_path / "cube" / "meta" / "info.json").write_text("[1]")
    with pytest.raises(CtaError, match="expected a JSON object"):
        read_lerobot(tmp_path / "cube")


def test_the_page_says_what_the_record_says():
    root = Path(__file__).parents[1] / "docs"
    page = (root / "own-data.md").read_text().replace("\n", " ")
    folder = root / "measurements" / "lerobot-desk"
    with (folder / "evaluate.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [100 * int(row["successes"]) / int(row["episodes"]) for row in rows]
    *first, last = (f"{rate:.0f}" for rate in rates)
    assert f"{np.mean(rates):.1f} % of {sum(int(row['episodes']) for row in rows)} episodes" in page
    assert f"{', '.join(first)} and {last} % on tasks 1 to 5" in page
    made = json.loads((folder / "provenance.json").read_text())
    assert made["command"] in page and len(made["commit"]) == 40
    assert made["dataset"]["units"]["action_high"] == [60, 60, 100]
