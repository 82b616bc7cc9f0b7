"""Datasets and pair files from strangers: only clear errors, nothing executed, nothing written."""

import io
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cta.cli.data import describe
from cta.data import TrajectoryDataset, resolve
from cta.data.npz import map_array
from cta.errors import CtaError
from cta.ooc.components import find_layout
from cta.ooc.pairs import held_out_of
from fuzz_tools import count, damaged, fuzz, only_clear_errors

SOURCE = Path(__file__).parents[1] / "src"
ROWS = 12


def arrays():
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, size=(ROWS, 2)).astype(np.float32),
        "terminals": np.arange(ROWS) % 4 == 3,
        "qpos": rng.normal(size=(ROWS, 5)).astype(np.float32),
    }


def packed(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays())
    return buffer.getvalue()


PACKED = [packed(False), packed(True)]


def read_all(path: Path) -> None:
    """Every way a file of a stranger is looked at."""
    describe(resolve(path))
    data = TrajectoryDataset.from_npz(path, info=True)
    data.fingerprint()
    map_array(path, "actions")


@fuzz()
@given(st.data())
def test_damaged_files(tmp_path, data):
    path = tmp_path / "x.npz"
    path.write_bytes(data.draw(damaged(data.draw(st.sampled_from(PACKED)))))
    for left in tmp_path.glob("x.actions-*.npy"):
        left.unlink()
    with only_clear_errors("npz bytes"):
        read_all(path)
    assert {p.name for p in tmp_path.iterdir()} <= {"x.npz", *(p.name for p in tmp_path.glob("x.actions-????????.npy"))}


DTYPES = ["f4", "f8", "f2", "i4", "u1", "?", "c8", "U3", "S2", "M8[s]", "O", "f4,i4", ">f4", "V5"]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, ROWS, ROWS + 1]), max_size=4)


@st.composite
def odd_array(draw):
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), tuple(draw(SHAPES))
    size = int(np.prod(shape))
    if dtype.hasobject:
        return np.array([draw(st.sampled_from([None, {}, "x"])) for _ in range(size)] or [None], object)
    array = np.zeros(shape, dtype)
    if dtype.kind in "iufb" and size:
        special = [0, 1, 2, 1e6] + ([np.nan, np.inf, -1.0000001, 1e38] if dtype.kind == "f" else [])
        with np.errstate(all="ignore"):
            array.flat[draw(st.integers(0, size - 1))] = np.array(draw(st.sampled_from(special))).astype(dtype)
    return array


@fuzz()
@given(st.data())
def test_odd_arrays(tmp_path, data):
    content = arrays()
    names = [*content, "valids", "next_observations", "provenance", "[/red]", "../../up", "/abs", "a/b", "x" * 200]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        content[name] = data.draw(odd_array())
    for name in data.draw(st.lists(st.sampled_from(names), max_size=1)):
        content.pop(name, None)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in content.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    with only_clear_errors("npz arrays", tmp_path):
        read_all(path)


def entry(name: str, header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> tuple[str, bytes]:
    text = header.encode() + b"\n"
    return f"{name}.npy", b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + body


HEADERS = st.sampled_from(
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, %d), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (%d,), }",
        "{'descr': '<f4', 'shape': (%d,), }",
        "{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (%d,)}",
        "[" * 400 + "%d",
        "{'descr': [('a', '<f4', (%d, 9))], 'fortran_order': False, 'shape': (2,)}",
        "%d",
    ]
)


@fuzz()
@given(st.data())
def test_forged_headers(tmp_path, data):
    path = tmp_path / "x.npz"
    sizes = st.sampled_from([0, 1, -1, ROWS, 2**31, 2**40, 2**62, 10**30])
    with zipfile.ZipFile(path, "w", data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))) as archive:
        for name in ("observations", "actions", "terminals"):
            header = data.draw(HEADERS) % data.draw(sizes)
            versions = st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
            archive.writestr(*entry(name, header, data.draw(st.binary(max_size=64)), data.draw(versions)))
    with only_clear_errors("npz headers", tmp_path):
        TrajectoryDataset.from_npz(path, info=True)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, recorder: Path):
        self.recorder = recorder

    def __reduce__(self):
        return os.system, (f"touch {self.recorder}",)


@pytest.mark.parametrize("key", ["observations", "actions", "terminals", "qpos", "provenance"])
def test_a_malicious_file_runs_nothing(tmp_path, key):
    recorder = tmp_path / "owned"
    content = arrays() | {key: np.array([Evil(recorder)] * ROWS, object)}
    path = tmp_path / "x.npz"
    np.savez(path, **content)
    with pytest.raises(CtaError, match="holds pickled objects, which are never loaded"):
        TrajectoryDataset.from_npz(path, info=True)
    with only_clear_errors("malicious"):
        read_all(path)
    assert not recorder.exists()
    pickle.loads(pickle.dumps(Evil(recorder)))  # the bait is real
    assert recorder.exists()


def test_nothing_in_the_package_unpickles():
    pattern = re.compile(
        r"\bpickle\b|allow_pickle=True|joblib|\bmarshal\b|\bshelve\b|\bdill\b|\beval\(|(?<![\w.])exec\("
    )
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


PAIRS = b"""
[thresholds]
drawer = 0.04

[[pair]]
name = "close the drawer while the window is open"
context = { window = "open" }
event = { drawer = "closed" }
K = 5
"""


@fuzz()
@given(st.data())
def test_damaged_pair_files(tmp_path, data):
    path = tmp_path / "pairs.toml"
    path.write_bytes(data.draw(damaged(PAIRS)))
    with only_clear_errors("pair files", tmp_path):
        held_out_of(
            find_layout(data.draw(st.sampled_from(["scene-play-v0", "puzzle-4x4-play-v0", "desk-play-v0"]))), path
        )


NAMES = ["drawer", "window", "cube", "drawer_lock", "press", "tray", '"a b"']
WORDS = ["open", "closed", "locked", "inside", "../x", ""]
ATOMS = ["1", "-1", "1e400", "nan", "99999999999999999999", "true", "1979-05-27", "[]", *(f'"{w}"' for w in WORDS)]


@st.composite
def toml_table(draw, inner):
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    return "{" + ", ".join(f"{name} = {draw(inner)}" for name in names) + "}"


@fuzz()
@given(st.data())
def test_odd_pair_files(tmp_path, data):
    """A good pair, or none, with lines of any kind in the place of its own."""
    atom = st.sampled_from(ATOMS)
    value = (
        atom
        | toml_table(atom)
        | toml_table(toml_table(atom))
        | st.lists(atom, max_size=2).map(", ".join).map("[{}]".format)
    )
    good = {"context": '{window = "open"}', "event": '{drawer = "closed"}', "K": "5"}
    lines = dict(good) if data.draw(st.integers(0, 3)) else {}
    for key in data.draw(st.lists(st.sampled_from([*good, "name", "other", "drawer"]), unique=True, max_size=2)):
        lines[key] = data.draw(value)
    usual = st.just("[[pair]]")
    head = data.draw(
        usual | st.sampled_from(["[pair]", "[thresholds]", "[event_thresholds]", "", "[[pair]]\n[[pair]]"])
    )
    path = tmp_path / "pairs.toml"
    path.write_text("\n".join([head, *(f"{key} = {held}" for key, held in lines.items())]))
    with only_clear_errors("pair files, values", tmp_path):
        held_out_of(find_layout("scene-play-v0"), path)


def test_the_pair_file_that_is_damaged_is_a_good_one(tmp_path):
    (tmp_path / "pairs.toml").write_bytes(PAIRS)
    assert len(held_out_of(find_layout("scene-play-v0"), tmp_path / "pairs.toml").pairs) == 1
    count("pair files", "accepted")
