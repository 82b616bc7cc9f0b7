"""Reading and writing OGBench's npz files: never unpickled, never half written, never a second copy in memory.

Large arrays are memory maps: in place where they are stored as they are, else unpacked once.
"""

import glob
import json
import math
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from cta.data.progress import human, progress
from cta.errors import CtaError
from cta.io.files import cache_folder, check_writable, sync_folder, writing
from cta.io.json_files import known_maker, parse_json

PROVENANCE_KEY = "provenance"
CHUNK_BYTES = 1 << 24
LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip member, as far as it is fixed: lengths of name and extra field
SPARE_BYTES = 1 << 26  # room that unpacking leaves on a disk
MEMORY_BYTES = 1 << 30
T = TypeVar("T")


class Column(NamedTuple):
    """An array that is written piece by piece: `pieces` yields blocks of rows that add up to `shape`."""

    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def row_blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Consecutive blocks of rows of at most about `CHUNK_BYTES` bytes, each with the index of its first row."""
    rows = max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes)) if len(array) else 1
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def column(array: np.ndarray) -> Column:
    return Column(array.dtype, array.shape, (block for _, block in row_blocks(array)))


def write_npz(path: Path, columns: Mapping[str, Column], provenance: Mapping[str, Any] | None) -> None:
    """Write all of a compressed npz or nothing; its bytes depend on the arrays and the provenance only, on no clock."""
    if provenance is not None:
        text = np.array(json.dumps(provenance, sort_keys=True))
        columns = {**columns, PROVENANCE_KEY: Column(text.dtype, (), [text])}
    with writing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, values in columns.items():
            written, kind = 0, np.lib.format.dtype_to_descr(values.dtype)
            with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                header: Any = {"descr": kind, "fortran_order": False, "shape": values.shape}
                np.lib.format.write_array_header_1_0(entry, header)
                for piece in values.pieces:
                    written += entry.write(piece.astype(values.dtype, casting="no", copy=False).tobytes())
            if written != math.prod(values.shape) * values.dtype.itemsize:
                raise CtaError(f"internal: {written} bytes written for {key} of shape {values.shape}")
    with suppress(OSError):  # a rename survives a power cut once its folder is on the disk, where the file system can
        sync_folder(path.parent)


class NpzReader(AbstractContextManager["NpzReader"]):
    """Lazy access to the arrays of an npz file, with every kind of damage reported in one line."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise CtaError(f"no such file: {path}")
        if not self.path.is_file():  # a pipe or a device would be read without end
            raise CtaError(f"{path} is not a file")
        try:
            self.archive = zipfile.ZipFile(self.path)
        except OSError as error:
            raise CtaError(f"cannot read {path}: {error.strerror or error}") from None
        except Exception:  # a damaged directory surfaces as almost any exception
            raise CtaError(f"{path} is not an npz file, or is truncated: generate or download it again") from None
        self.keys = [name[:-4] for name in self.archive.namelist() if name.endswith(".npy")]

    def __exit__(self, *_: object) -> None:
        self.archive.close()

    def header(self, key: str) -> tuple[tuple[int, ...], np.dtype]:
        shape, _, dtype = self._read(key, read_header)
        return shape, dtype

    def __getitem__(self, key: str) -> np.ndarray:
        return self.read_plain(key, lambda entry: np.lib.format.read_array(entry, allow_pickle=False))

    def read_plain(self, key: str, reader: Callable[[Any], T]) -> T:
        """What `reader` makes of an array's npy file, unless that holds objects."""
        if self.header(key)[1].hasobject:
            raise CtaError(f"{self.path}: {key} holds pickled objects, which are never loaded: save plain arrays")
        return self._read(key, reader)

    def check(self) -> None:
        with reading(str(self.path)):
            damaged = self.archive.testzip()
        if damaged is not None:
            raise CtaError(f"{self.path}: {damaged} has another checksum than it should: the file is damaged")

    def _read(self, key: str, reader: Callable[[Any], T]) -> T:
        with reading(f"{self.path}: {key}"), self.archive.open(f"{key}.npy") as entry:
            return reader(entry)

    def provenance(self) -> dict[str, Any] | None:
        if PROVENANCE_KEY not in self.keys:
            return None
        array = self[PROVENANCE_KEY]
        try:
            record = parse_json(str(array[()]), str(self.path))
        except (CtaError, IndexError):
            return None
        return known_maker(record, str(self.path))


def read_header(entry: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran's order, dtype) at the beginning of an npy file, which is left at its values."""
    version = np.lib.format.read_magic(entry)
    return (np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0)(entry)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Reads a file of others. Damage surfaces as almost any exception of zip, zlib, NumPy, PyArrow, h5py: one line."""
    try:
        yield
    except CtaError:
        raise
    except MemoryError:
        raise CtaError(f"{what} does not fit in memory") from None
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CtaError(f"{what}: cannot be read ({reason}): the file is damaged") from None


def read_or_map(file: NpzReader, key: str, *, limit: int = MEMORY_BYTES) -> np.ndarray:
    """An array of an npz file: in memory up to `limit` bytes, beyond that as a memory map."""
    shape, dtype = file.header(key)
    large = math.prod(shape) * dtype.itemsize > limit
    return map_array(file.path, key) if large else file[key]


def map_array(path: str | Path, key: str) -> np.ndarray:
    """A read-only memory map of an array: where it lies, or of a copy unpacked once beside the file or in the cache."""
    with NpzReader(Path(path).expanduser()) as file:
        return file.read_plain(key, lambda entry: _map_member(file, entry))


def _map_member(file: NpzReader, entry: IO[bytes]) -> np.ndarray:
    member = file.archive.getinfo(entry.name)
    stored = member.compress_type == zipfile.ZIP_STORED
    place = file.path if stored else _unpacked(entry, file.path, member)
    with place.open("rb") as there:
        if stored:  # behind the member's own header
            there.seek(member.header_offset)
            there.seek(sum(LOCAL_HEADER.unpack(there.read(LOCAL_HEADER.size))), os.SEEK_CUR)
        shape, fortran, dtype = read_header(there)
        return np.memmap(place, dtype, "r", there.tell(), shape, "F" if fortran else "C")


def is_mapped(array: np.ndarray) -> bool:
    """Whether the values lie in a mapped file; NumPy may show them as a plain array, whose base they then are."""
    owner: Any = array
    while owner is not None and not isinstance(owner, np.memmap):
        owner = getattr(owner, "base", None)
    return owner is not None


def _unpacked(entry: IO[bytes], path: Path, member: zipfile.ZipInfo) -> Path:
    """A copy of a compressed member; by the checksum in its name it is known as that of the same values."""
    folders, size = (path.parent, cache_folder()), member.file_size
    stem = f"{path.stem}.{member.filename.removesuffix('.npy')}"
    name = f"{stem}-{member.CRC:08x}.npy"
    for folder in folders:
        made = folder / name
        if made.is_file() and made.stat().st_size == size and os.access(made, os.R_OK):
            return made
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_writable(folder)
            free = shutil.disk_usage(folder).free
            if free >= size + SPARE_BYTES:
                break
            reasons.append(f"{folder} has {human(free)}B free")
        except (OSError, CtaError) as error:
            reasons.append(str(error))
    else:
        needs = f"{path} must be unpacked to be streamed, which takes {human(size)}B of disk"
        raise CtaError(f"{needs} ({'; '.join(reasons)}): free some, or point XDG_CACHE_HOME at a larger disk")
    for old in folder.glob(f"{glob.escape(stem)}-????????.npy"):  # of an earlier file of this name
        old.unlink(missing_ok=True)
    with writing(folder / name) as out, progress(f"unpacking {path.name}", total=size, unit="B") as advance:
        while chunk := entry.read(CHUNK_BYTES):  # which verifies the zip's checksum on the way
            out.write(chunk)
            advance(len(chunk))
    return folder / name
