"""OGBench's published files: mirrors, resumed transfers, and a checksum written down beside the file."""

import hashlib
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from cta.data.npz import NpzReader
from cta.data.progress import human, progress
from cta.errors import CtaError
from cta.io.files import file_lock
from cta.io.json_files import read_json, write_json

PUBLISHED = "https://rail.eecs.berkeley.edu/datasets/ogbench"
MIRRORS_VARIABLE = "CTA_DATA_MIRRORS"
BLOCK = 1 << 20
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3


class _Failed(Exception):
    """A mirror that cannot give the file, or gave something else; the message says why."""


def mirrors(extra: Sequence[str] = ()) -> list[str]:
    """Where to look, in order: the caller's, those of CTA_DATA_MIRRORS (separated by spaces), OGBench's own server."""
    found = [*extra, *os.environ.get(MIRRORS_VARIABLE, "").split(), PUBLISHED]
    return [address.rstrip("/") for address in dict.fromkeys(found)]


def record_path(path: Path) -> Path:
    """The small JSON beside a downloaded file: address, size and SHA-256."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(record_path(path))
    except CtaError:
        return None


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(name: str, folder: Path, *, extra_mirrors: Sequence[str] = (), advice: str = "") -> list[Path]:
    """NAME.npz and NAME-val.npz in `folder`, fetched unless they are there. `advice` ends the line about a failure."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise CtaError(f"'{name}' is not the name of a dataset such as scene-play-v0")
    paths = [folder / f"{name}.npz", folder / f"{name}-val.npz"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in reversed(paths):  # validation first: a training file always has its other half
            if not path.exists():
                with file_lock(path, waiting=f"waiting for another process that downloads {path.name}"):
                    if not path.exists():
                        _fetch(path, mirrors(extra_mirrors), advice=advice)
    except OSError as error:
        raise CtaError(f"cannot write into {folder}: {error.strerror or error}") from None
    return paths


def _fetch(path: Path, addresses: Sequence[str], *, advice: str) -> None:
    """Try the mirrors in turn: each again while it brings more, and from the start if resuming damaged the file."""
    partial = path.with_name(f".{path.name}.part")
    reasons = []
    for address in addresses:
        for _ in range(ATTEMPTS):
            before = _size(partial)
            try:
                _transfer(f"{address}/{path.name}", partial)
                _accept(partial, path, f"{address}/{path.name}")
                return
            except _Failed as error:
                reasons.append(f"{address}: {error}")
            if _size(partial) == before:
                break  # another mirror, rather than the same again
    raise CtaError(f"cannot download {path.name} ({'; '.join(dict.fromkeys(reasons))}). {advice}".strip())


def _size(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _tag_file(partial: Path) -> Path:
    """Which version of a file the partial one is of, in the words of the server; there until it is accepted."""
    return partial.with_name(f"{partial.name}.tag")


def _discard(partial: Path) -> None:
    for file in (partial, _tag_file(partial)):
        file.unlink(missing_ok=True)


def _transfer(url: str, partial: Path) -> None:
    """Bring `partial` to its full length, from where an earlier transfer of the same version stopped."""
    have = _size(partial)
    found = _tag_file(partial).read_bytes() if have and _tag_file(partial).is_file() else b""
    tag = found.decode() if re.fullmatch(rb"[ -~]{1,200}", found) else ""  # what a server could have said
    headers = {"User-Agent": "cta"} | ({"Range": f"bytes={have}-", "If-Range": tag} if tag else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        response = error
    except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
        raise _Failed(str(getattr(error, "reason", error))) from None
    with response:
        if response.status in (None, 200):  # None: of a file:// address
            _discard(partial)
            return _copy(response, partial, have=0)
        if response.status not in (206, 416) or not tag:
            raise _Failed(f"HTTP {response.status} {response.reason}")
        span = response.headers.get("Content-Range", "")
        if response.status == 416 and span == f"bytes */{have}":
            return None  # it was complete, but not yet accepted
        rest = re.fullmatch(rf"bytes {have}-(\d{{1,18}})/(\d{{1,18}})", span)
        same = tag in (response.headers.get("ETag"), response.headers.get("Last-Modified"))
        if response.status == 206 and same and rest and int(rest[1]) == int(rest[2]) - 1:
            return _copy(response, partial, have=have)
    _discard(partial)  # what comes does not fit what is there: begin again
    return _transfer(url, partial)


def _copy(response: Any, partial: Path, *, have: int) -> None:
    etag = response.headers.get("ETag", "")
    tag = response.headers.get("Last-Modified") if etag.startswith("W/") or not etag else etag
    if tag and not have:
        _tag_file(partial).write_text(tag)
    length = response.headers.get("Content-Length")
    if length is not None and not re.fullmatch(r"\d{1,18}", length):
        raise _Failed(f"the server announces a length of '{length[:40]}'")
    free = shutil.disk_usage(partial.parent).free
    if length is not None and int(length) > free:
        raise _Failed(f"the server announces {human(int(length))}B, the disk has {human(free)}B free")
    total = None if length is None else have + int(length)
    with open(partial, "ab") as file, progress(partial.name[1:-5], total=total, unit="B", done=have) as advance:
        while block := _read(response):
            file.write(block)
            advance(len(block))
        file.flush()
        os.fsync(file.fileno())
    if total is not None and partial.stat().st_size != total:
        raise _Failed(f"the transfer stopped at {partial.stat().st_size} of {total} bytes")


def _read(response: Any) -> bytes:
    try:
        return response.read(BLOCK)
    except (OSError, HTTPException) as error:
        raise _Failed(f"the transfer broke off ({error})") from None


def _accept(partial: Path, path: Path, url: str) -> None:
    known, found = (read_record(path) or {}).get("sha256"), sha256_of(partial)
    try:
        with NpzReader(partial) as file:
            file.check()
            if "observations" not in file.keys:
                raise CtaError(f"{partial} is an npz file, but not a dataset")
        if known not in (None, found):
            told = f"{record_path(path).name} says {known}; delete that record to accept it"
            raise CtaError(f"SHA-256 {found}, but {told}")
    except CtaError as error:
        _discard(partial)
        raise _Failed(str(error).replace(str(partial), path.name)) from None
    write_json(record_path(path), {"url": url, "bytes": _size(partial), "sha256": found})
    os.replace(partial, path)
    _discard(partial)
