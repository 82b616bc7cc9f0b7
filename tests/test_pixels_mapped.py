"""Memory maps of npz members: in place when stored, unpacked once when compressed, errors in one line."""

import errno
import os
import shutil
import tracemalloc
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

from cta.data import TrajectoryDataset, npz
from cta.data.dataset import hold_out
from cta.data.npz import NpzReader, cache_folder, is_mapped, map_array, read_or_map
from cta.errors import CtaError

IMAGES = np.random.default_rng(0).integers(0, 8, (40, 4, 4, 3), np.uint8)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def file(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", observations=IMAGES, other=np.arange(3))
    return tmp_path / "d.npz"


def copies(folder):
    return sorted(folder.glob("*.npy"))


@pytest.mark.parametrize("array", [IMAGES, np.asfortranarray(IMAGES), np.float32(IMAGES), np.arange(5)])
def test_stored_members_are_mapped_where_they_lie(tmp_path, array):
    np.savez(tmp_path / "d.npz", before=np.arange(7), observations=array, after=np.arange(3))
    found = map_array(tmp_path / "d.npz", "observations")
    assert isinstance(found, np.memmap) and found.filename == tmp_path / "d.npz"
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, array)
    assert os.listdir(tmp_path) == ["d.npz"] and not cache_folder().exists()


def test_compressed_members_are_unpacked_once(file):
    first = map_array(file, "observations")
    np.testing.assert_array_equal(first, IMAGES)
    (copy,) = copies(file.parent)
    np.testing.assert_array_equal(np.load(copy), IMAGES)
    inode = copy.stat().st_ino
    map_array(file, "observations")
    assert copy.stat().st_ino == inode


def test_others_may_read_the_copy(file):
    mask = os.umask(0o022)
    try:
        map_array(file, "observations")
    finally:
        os.umask(mask)
    (copy,) = copies(file.parent)
    assert copy.stat().st_mode & 0o777 == 0o644


def test_a_copy_that_may_not_be_read_is_made_again(file, monkeypatch):
    map_array(file, "observations")
    (copy,) = copies(file.parent)
    inode = os.open(copy, os.O_RDONLY)  # keeps its number from being given to the next file
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    np.testing.assert_array_equal(map_array(file, "observations"), IMAGES)
    assert not os.path.samestat(os.fstat(inode), copy.stat())
    os.close(inode)


def test_a_changed_file_is_unpacked_again_and_the_old_copy_goes(file):
    map_array(file, "other")
    map_array(file, "observations")
    np.savez_compressed(file, observations=IMAGES + np.uint8(1), other=np.arange(3))
    np.testing.assert_array_equal(map_array(file, "observations"), IMAGES + 1)
    assert [path.name.split("-")[0] for path in copies(file.parent)] == ["d.observations", "d.other"]


def test_only_copies_of_the_same_file_go(file, tmp_path):
    """A file may be called `*`."""
    kept = map_array(file, "observations")
    map_array(file.rename(tmp_path / "*.npz"), "observations")
    assert (tmp_path / kept.filename).exists()


def test_a_cut_copy_is_made_again(file):
    map_array(file, "observations")
    (copy,) = copies(file.parent)
    os.truncate(copy, 100)
    np.testing.assert_array_equal(map_array(file, "observations"), IMAGES)


def test_without_room_beside_it_the_users_cache_is_used(file, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda at: Usage(1, 1, 0 if at == file.parent else 1 << 40))
    np.testing.assert_array_equal(map_array(file, "observations"), IMAGES)
    assert not copies(file.parent) and len(copies(cache_folder())) == 1
    map_array(file, "observations")  # found there again
    assert not copies(file.parent)


def test_no_room_anywhere_says_how_much_is_needed(file, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda at: Usage(1, 1, 5000))
    with pytest.raises(CtaError, match=r"takes 2.0kB of disk .*has 5.0kB free.*XDG_CACHE_HOME"):
        map_array(file, "observations")
    assert os.listdir(file.parent) == ["d.npz"]


def test_a_disk_that_fills_up_leaves_nothing(file, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CtaError, match=r"cannot be written \(No space left"):
        map_array(file, "observations")
    assert os.listdir(file.parent) == ["d.npz"]


def test_damage_is_one_line_and_leaves_nothing(file):
    data = bytearray(file.read_bytes())
    data[300] ^= 255  # inside the compressed values
    file.write_bytes(data)
    with pytest.raises(CtaError, match="damaged"):
        map_array(file, "observations")
    assert os.listdir(file.parent) == ["d.npz"]


def test_pickles_and_missing_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", observations=np.array([{}], object))
    with pytest.raises(CtaError, match="pickled"):
        map_array(tmp_path / "d.npz", "observations")
    with pytest.raises(CtaError, match="actions"):
        map_array(tmp_path / "d.npz", "actions")
    with pytest.raises(CtaError, match="no such file"):
        map_array(tmp_path / "e.npz", "observations")


def test_small_arrays_are_read_large_ones_mapped(file):
    with NpzReader(file) as reader:
        read, there = (read_or_map(reader, "observations", limit=n) for n in (IMAGES.nbytes, IMAGES.nbytes - 1))
    assert not isinstance(read, np.memmap) and isinstance(there, np.memmap)
    np.testing.assert_array_equal(read, there)
    assert npz.MEMORY_BYTES == 1 << 30


def test_a_dataset_keeps_the_map(file):
    observations = map_array(file, "observations")
    data = TrajectoryDataset.from_arrays(observations, np.zeros((40, 2), np.float32), episode_lengths=[20, 20])
    assert np.shares_memory(data.observations, observations)


def test_nothing_is_held_out_of_a_mapped_file_and_nothing_copied(tmp_path, monkeypatch):
    images = np.zeros((400, 100, 100, 3), np.uint8)
    np.savez(tmp_path / "d.npz", observations=images, actions=np.zeros((400, 2)), terminals=np.arange(400) % 20 == 19)
    monkeypatch.setattr("cta.data.dataset.read_or_map", partial(read_or_map, limit=0))
    tracemalloc.start()
    try:
        data = TrajectoryDataset.from_npz(tmp_path / "d.npz")
        left, held = hold_out(data, 0.1)
        assert tracemalloc.get_traced_memory()[1] < images.nbytes / 4
    finally:
        tracemalloc.stop()
    assert held is None and left is data and is_mapped(data.observations)


def test_what_is_mapped_is_recognised_through_views(file):
    there = map_array(file, "observations")
    assert all(map(is_mapped, (there, np.asarray(there), np.asarray(there)[3:][::2], there[1:])))
    assert not any(map(is_mapped, (IMAGES, IMAGES[2:], there[there > 1], np.array(there))))
