"""Arrays of an npz file as memory maps: in place where they are stored as they are, else unpacked once."""

import glob
import os
import shutil
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from cta.data.npz import CHUNK_BYTES, NpzReader, read_header
from cta.data.progress import human, progress
from cta.errors import CtaError
from cta.io.files import check_writable, writing

LOCAL_HEADER = struct.Struct("<26xHH")
"""The fixed part of a zip member's own header, of which only the lengths of name and extra field matter here."""
SPARE_BYTES = 1 << 26
"""Room that unpacking leaves on a disk."""
MEMORY_BYTES = 1 << 30
"""Arrays up to this size are read into memory."""


def read_or_map(file: NpzReader, key: str, *, limit: int = MEMORY_BYTES) -> np.ndarray:
    """An array of an npz file: in memory up to `limit` bytes, beyond that as a memory map."""
    shape, dtype = file.header(key)
    large = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize > limit
    return map_array(file.path, key) if large else file[key]


def map_array(path: str | Path, key: str) -> np.ndarray:
    """A read-only memory map of array `key` of an npz file.

    An uncompressed member is mapped where it lies. A compressed one is unpacked, once, into a `.npy` beside the file
    or, where that folder has no room or may not be written, in the user's cache ($XDG_CACHE_HOME or ~/.cache); its
    name carries the member's checksum, so that it is found again exactly as long as the file holds the same values.
    """
    path = Path(path).expanduser()
    with NpzReader(path) as file:
        return file.read_plain(key, lambda entry: _map_member(file.archive, path, entry))


def _map_member(archive: zipfile.ZipFile, path: Path, entry: IO[bytes]) -> np.ndarray:
    member = archive.getinfo(entry.name)
    if member.compress_type != zipfile.ZIP_STORED:
        return _map(_unpacked(entry, path, member), 0)
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    return _map(path, member.header_offset + LOCAL_HEADER.size + name + extra)


def is_mapped(array: np.ndarray) -> bool:
    """Whether the values lie in a mapped file; NumPy may show them as a plain array, whose base they then are."""
    owner: Any = array
    while owner is not None and not isinstance(owner, np.memmap):
        owner = getattr(owner, "base", None)
    return owner is not None


def _map(path: Path, start: int) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(start)
        shape, fortran, dtype = read_header(file)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def _unpacked(entry: IO[bytes], path: Path, member: zipfile.ZipInfo) -> Path:
    """The unpacked copy of a compressed member, made if it is not there."""
    folders = (path.parent, cache_folder())
    stem = f"{path.stem}.{member.filename.removesuffix('.npy')}"
    name = f"{stem}-{member.CRC:08x}.npy"
    for folder in folders:
        made = folder / name
        if made.is_file() and made.stat().st_size == member.file_size and os.access(made, os.R_OK):
            return made
    folder = _folder_with_room(folders, member.file_size, path)
    for old in folder.glob(f"{glob.escape(stem)}-????????.npy"):  # of an earlier file of this name
        old.unlink(missing_ok=True)
    with (
        writing(folder / name) as out,
        progress(f"unpacking {path.name}", total=member.file_size, unit="B") as advance,
    ):
        while chunk := entry.read(CHUNK_BYTES):  # which verifies the zip's checksum on the way
            out.write(chunk)
            advance(len(chunk))
    return folder / name


def cache_folder() -> Path:
    """The user's folder of things that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cta"


def _folder_with_room(folders: tuple[Path, ...], size: int, path: Path) -> Path:
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_writable(folder)
            free = shutil.disk_usage(folder).free
            if free >= size + SPARE_BYTES:
                return folder
            reasons.append(f"{folder} has {human(free)}B free")
        except (OSError, CtaError) as error:
            reasons.append(str(error))
    raise CtaError(
        f"{path} must be unpacked to be streamed, which takes {human(size)}B of disk ({'; '.join(reasons)}): "
        "free some, or point XDG_CACHE_HOME at a larger disk"
    )
