"""Reading and writing OGBench's npz files: never unpickled, never half written, never a second copy in memory."""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cta.errors import CtaError
from cta.io.files import sync_folder, writing
from cta.io.json_files import parse_json
from cta.io.shapes import known_maker

PROVENANCE_KEY = "provenance"
CHUNK_BYTES = 1 << 24
T = TypeVar("T")


@dataclass(frozen=True)
class Column:
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
    """An array in memory as a `Column`."""
    return Column(array.dtype, array.shape, (block for _, block in row_blocks(array)))


def write_npz(path: Path, columns: Mapping[str, Column], provenance: Mapping[str, Any] | None) -> None:
    """Write a compressed npz to a temporary file beside `path`, flush it to disk, and rename it into place.

    The bytes depend on the arrays and the provenance only: a zip entry written here carries no clock.
    """
    with writing(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, values in columns.items():
            _write_entry(archive, key, values)
        if provenance is not None:
            text = np.array(json.dumps(provenance, sort_keys=True))
            _write_entry(archive, PROVENANCE_KEY, Column(text.dtype, (), [text]))
    with suppress(OSError):  # a rename survives a power cut once its folder is on the disk, where the file system can
        sync_folder(Path(path).parent)


def _write_entry(archive: zipfile.ZipFile, key: str, values: Column) -> None:
    written = 0
    with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
        header = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": values.shape}
        np.lib.format.write_array_header_1_0(entry, header)  # pyright: ignore[reportArgumentType]
        for piece in values.pieces:
            written += entry.write(piece.astype(values.dtype, casting="no", copy=False).tobytes())
    if written != int(np.prod(values.shape, dtype=np.int64)) * values.dtype.itemsize:
        raise CtaError(f"internal: {written} bytes written for {key} of shape {values.shape}")


class NpzReader:
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

    def __enter__(self) -> "NpzReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.archive.close()

    def header(self, key: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of an array, without reading its values."""
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
        """Read all of the archive and compare the checksums in it."""
        with reading(str(self.path)):
            damaged = self.archive.testzip()
        if damaged is not None:
            raise CtaError(f"{self.path}: {damaged} has another checksum than it should: the file is damaged")

    def _read(self, key: str, reader: Callable[[Any], T]) -> T:
        with reading(f"{self.path}: {key}"), self.archive.open(f"{key}.npy") as entry:
            return reader(entry)

    def provenance(self) -> dict[str, Any] | None:
        """The record of how the file was made, if it carries one."""
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
