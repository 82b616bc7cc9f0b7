"""The dataset readers, writers, views and complaints."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ogbench.utils import load_dataset

from cta.data import TrajectoryDataset, dataset_folder, environment_name, resolve
from cta.data import npz as npz_module
from cta.errors import CtaError
from ogbench_forms import compact, regular

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ogbench")

lengths_strategy = st.lists(st.integers(2, 6), min_size=1, max_size=5)


def arrays(lengths, *, size=3, action_dim=2, seed=0, pixels=False):
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    terminals = np.zeros(rows, bool)
    terminals[np.cumsum(lengths) - 1] = True
    if pixels:
        observations = rng.integers(0, 256, (rows, 4, 4, 3), dtype=np.uint8)
    else:
        observations = rng.normal(size=(rows, size)).astype(np.float32)
    return observations, rng.uniform(-1, 1, (rows, action_dim)).astype(np.float32), terminals


def dataset(lengths=(3, 4), **options):
    info = {"qpos": np.arange(sum(lengths) * 2.0).reshape(-1, 2), "button_states": np.ones((sum(lengths), 3), np.int64)}
    return TrajectoryDataset.from_arrays(*arrays(lengths, **options), info=info, name="toy-play-v0")


def assert_same(ours: dict, theirs: dict) -> None:
    assert set(ours) == set(theirs)
    for key, values in theirs.items():
        assert ours[key].dtype == values.dtype, key
        np.testing.assert_array_equal(ours[key], values, err_msg=key)


@given(lengths=lengths_strategy, seed=st.integers(0, 99), pixels=st.booleans())
def test_views_equal_those_of_ogbench_and_the_file_comes_back(tmp_path_factory, lengths, seed, pixels):
    path = tmp_path_factory.mktemp("views") / "toy-play-v0.npz"
    data = TrajectoryDataset.from_arrays(
        *arrays(lengths, seed=seed, pixels=pixels),
        info={"qvel": np.random.default_rng(seed).normal(size=(sum(lengths), 2))},
        provenance={"seed": seed},
    )
    data.to_npz(path)
    observation_type = np.uint8 if pixels else np.float32
    for is_compact, ours in ((True, compact), (False, regular)):
        for info in (True, False):
            theirs = load_dataset(path, ob_dtype=observation_type, compact_dataset=is_compact, add_info=info)
            assert_same(ours(data, info=info), theirs)
    back = TrajectoryDataset.from_npz(path, info=True)
    assert back.fingerprint() == data.fingerprint()
    assert back.provenance == {"seed": seed}
    assert back.name == "toy-play-v0"
    np.testing.assert_array_equal(back.info["qvel"], data.info["qvel"])
    assert TrajectoryDataset.from_npz(path).info == {}


@given(lengths=lengths_strategy)
def test_bounds_agree_with_a_slow_loop(lengths):
    data = dataset(lengths)
    starts, ends, valid, limits, row = [], [], [], [], 0
    for length in lengths:
        starts.append(row)
        ends.append(row + length - 1)
        valid += range(row, row + length - 1)
        limits += [row + length - 2] * length
        row += length
    assert data.num_rows == row
    assert data.num_episodes == len(lengths)
    assert data.num_transitions == row - len(lengths)
    for name, expected in (("starts", starts), ("ends", ends)):
        np.testing.assert_array_equal(getattr(data, f"episode_{name}"), expected)
    np.testing.assert_array_equal(data.valid_rows, valid)
    np.testing.assert_array_equal(data.goal_limits, limits)
    assert data.valid_rows.dtype == data.goal_limits.dtype == np.int32


@given(lengths=lengths_strategy)
def test_goal_limit_is_the_first_compact_terminal_at_or_after_a_valid_row(lengths):
    data = dataset(lengths)
    terminal_rows = np.flatnonzero(compact(data)["terminals"])
    for row in data.valid_rows:
        assert data.goal_limits[row] == terminal_rows[terminal_rows >= row][0]


@given(lengths=lengths_strategy, seed=st.integers(0, 99))
def test_transitions_give_the_same_dataset_as_states(lengths, seed):
    data = TrajectoryDataset.from_arrays(*arrays(lengths, seed=seed))
    view = regular(data)
    joined = TrajectoryDataset.from_arrays(
        view["observations"], view["actions"], view["terminals"], next_observations=view["next_observations"]
    )
    np.testing.assert_array_equal(joined.observations, data.observations)
    np.testing.assert_array_equal(joined.terminals, data.terminals)
    np.testing.assert_array_equal(joined.actions[joined.valid_rows], data.actions[data.valid_rows])
    assert (joined.actions[joined.episode_ends] == 0).all()


@pytest.mark.parametrize("form", [compact, regular])
def test_ogbench_forms_saved_to_a_file_are_read(tmp_path, form):
    data = dataset()
    np.savez(tmp_path / "saved.npz", **form(data))
    back = TrajectoryDataset.from_npz(tmp_path / "saved.npz")
    np.testing.assert_array_equal(back.observations, data.observations)
    np.testing.assert_array_equal(back.terminals, data.terminals)


def test_episode_lengths_float64_and_float_terminals_are_converted():
    observations, actions, terminals = arrays([3, 4])
    one = TrajectoryDataset.from_arrays(
        observations.astype(np.float64), actions.astype(np.float64), episode_lengths=[3, 4]
    )
    two = TrajectoryDataset.from_arrays(observations, actions, terminals.astype(np.float32))
    assert one.fingerprint() == two.fingerprint()
    assert one.observations.dtype == np.float32


def test_fingerprint_sees_every_array_but_not_the_info():
    observations, actions, terminals = arrays([3, 4])
    base = TrajectoryDataset.from_arrays(observations, actions, terminals).fingerprint()
    assert dataset().fingerprint() == base
    changed = actions.copy()
    changed[5, 1] = 0.25
    assert TrajectoryDataset.from_arrays(observations, changed, terminals).fingerprint() != base
    assert TrajectoryDataset.from_arrays(observations, actions, episode_lengths=[4, 3]).fingerprint() != base


def spoiled(**changes):
    observations, actions, terminals = arrays([3, 4])
    return {"observations": observations, "actions": actions, "terminals": terminals} | changes


def edited(key, place, value):
    array = spoiled()[key].copy()
    array[place] = value
    return {key: array}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (edited("observations", (5, 2), np.nan), "observations has nan at row 5, column 2"),
        (edited("actions", (1, 0), np.inf), "actions has inf at row 1, column 0"),
        (edited("actions", (6, 1), -1.5), r"actions must lie in \[-1, 1\], found -1.5 at row 6, column 1"),
        ({"terminals": np.zeros(7, bool)}, "no terminals"),
        (edited("terminals", 6, False), r"last row \(6\) is not terminal"),
        (edited("terminals", 3, True), r"episode 1 has one row \(row 3\)"),
        ({"terminals": np.full(7, 2.0)}, "terminals must be 0 or 1, found 2.0 at row 0"),
        ({"terminals": np.array(["no"] * 7)}, "terminals have dtype"),
        ({"actions": np.zeros((6, 2), np.float32)}, "disagree in length: 7 observations, 6 actions, 7 terminals"),
        ({"actions": np.zeros(7, np.float32)}, r"actions have shape \(7,\)"),
        ({"observations": np.zeros(7, np.float32)}, r"observations have shape \(7,\)"),
        (
            {"observations": np.zeros((7, 6, 6), np.float32)},
            r"shape \(7, 6, 6\); use \(N, d\) for vectors or \(N, H, W, C\) for images",
        ),
        ({"observations": np.zeros((7, 2, 2, 2, 3), np.uint8)}, r"use \(N, d\)"),
        ({"observations": np.zeros((7, 3), np.int64)}, "observations have dtype int64; use float32"),
        ({"observations": np.full((7, 3), "a")}, "observations have dtype <U1"),
        ({"actions": np.zeros((7, 2), np.int32)}, "actions have dtype int32"),
        ({"observations": np.full((7, 3), 1e300)}, "observations has inf at row 0, column 0"),
    ],
)
@pytest.mark.parametrize("through_file", [False, True])
def test_bad_arrays_get_one_line(tmp_path, changes, complaint, through_file):
    values = spoiled(**changes)
    with pytest.raises(CtaError, match=complaint) as caught:
        if through_file:
            np.savez(tmp_path / "bad.npz", **values)
            TrajectoryDataset.from_npz(tmp_path / "bad.npz")
        else:
            TrajectoryDataset.from_arrays(values["observations"], values["actions"], values["terminals"])
    assert "\n" not in str(caught.value)


def test_no_episode_ends_given_at_all():
    observations, actions, _ = arrays([3, 4])
    with pytest.raises(CtaError, match="no terminals"):
        TrajectoryDataset.from_arrays(observations, actions)
    with pytest.raises(CtaError, match="add up to the 7 rows"):
        TrajectoryDataset.from_arrays(observations, actions, episode_lengths=[3, 3])


def test_transitions_that_do_not_connect_are_refused():
    view = regular(dataset())
    following = view["next_observations"].copy()
    following[1] += 1
    following[2] += 1  # row 1 ends no episode: rows 0, 1 belong to the first one
    view["terminals"][1] = 0
    with pytest.raises(CtaError, match="next_observations of row 1 differ from observations of row 2"):
        TrajectoryDataset.from_arrays(
            view["observations"], view["actions"], view["terminals"], next_observations=following
        )


def test_where_is_exact_across_blocks(monkeypatch):
    monkeypatch.setattr(npz_module, "CHUNK_BYTES", 24)
    with pytest.raises(CtaError, match="row 5, column 2"):
        TrajectoryDataset.from_arrays(**spoiled(**edited("observations", (5, 2), np.nan)))


def test_info_of_another_length_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", **spoiled(qpos=np.zeros((6, 2)), unrelated=np.zeros(3)))
    assert TrajectoryDataset.from_npz(tmp_path / "bad.npz").num_rows == 7
    with pytest.raises(CtaError, match="qpos has 6 rows, observations have 7"):
        TrajectoryDataset.from_npz(tmp_path / "bad.npz", info=True)


def test_missing_keys_name_themselves(tmp_path):
    np.savez(tmp_path / "bad.npz", observations=np.zeros((4, 2), np.float32))
    with pytest.raises(CtaError, match="missing actions, terminals; the file has observations"):
        TrajectoryDataset.from_npz(tmp_path / "bad.npz")
    with pytest.raises(CtaError, match="no such file"):
        TrajectoryDataset.from_npz(tmp_path / "absent.npz")


@pytest.mark.parametrize("key", ["actions", "terminals", "valids", "next_observations", "qpos"])
def test_lengths_are_compared_before_values_are_read(tmp_path, monkeypatch, key):
    np.savez(tmp_path / "bad.npz", **(spoiled() | {key: np.zeros((6, 3), np.float32)}))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("values were read"))
    monkeypatch.setattr(npz_module.NpzReader, "__getitem__", lambda self, key: np.ones(7))
    with pytest.raises(CtaError, match=f"6 {key}|{key} has 6 rows"):
        TrajectoryDataset.from_npz(tmp_path / "bad.npz", info=True)


@given(fraction=st.floats(0.01, 0.99))
def test_a_truncated_file_gets_one_line(tmp_path_factory, fraction):
    path = tmp_path_factory.mktemp("cut") / "cut.npz"
    dataset([50, 50]).to_npz(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(CtaError):
        TrajectoryDataset.from_npz(path, info=True)


@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_flipped_byte_is_noticed_or_harmless(tmp_path_factory, place, mask):
    path = tmp_path_factory.mktemp("flip") / "flip.npz"
    data = dataset([20, 20])
    data.to_npz(path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= mask
    path.write_bytes(bytes(content))
    try:
        back = TrajectoryDataset.from_npz(path, info=True)
    except CtaError as error:
        assert "\n" not in str(error)
    else:  # the byte belonged to a field nobody reads
        assert back.fingerprint() == data.fingerprint()


def test_writing_is_atomic_deterministic_and_leaves_nothing_behind(tmp_path):
    data = dataset()
    data.to_npz(tmp_path / "a.npz")
    data.to_npz(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert all(entry.compress_type == zipfile.ZIP_DEFLATED for entry in archive.infolist())
    with pytest.raises(CtaError, match="cannot be written"):
        data.to_npz(tmp_path / "nowhere" / "c.npz")


def test_names_and_folders(tmp_path, monkeypatch):
    assert environment_name("scene-play-v0") == "scene-v0"
    assert environment_name("visual-puzzle-3x3-play-v0") == "visual-puzzle-3x3-v0"
    with pytest.raises(CtaError, match="not a dataset name"):
        environment_name("scene")
    monkeypatch.setenv("OGBENCH_DATA_DIR", str(tmp_path))
    assert dataset_folder() == tmp_path
    assert dataset_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("OGBENCH_DATA_DIR")
    assert dataset_folder() == Path.home() / ".ogbench" / "data"
    files = resolve("scene-play-v0", dataset_dir=tmp_path)
    assert files.train == tmp_path / "scene-play-v0.npz"
    assert files.validation == tmp_path / "scene-play-v0-val.npz"
    files = resolve(str(tmp_path / "mine.npz"))
    assert (files.name, files.validation) == ("mine", tmp_path / "mine-val.npz")
    with pytest.raises(CtaError, match=r"ends in \.npz"):
        resolve(str(tmp_path / "mine.h5"))
