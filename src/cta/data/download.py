"""OGBench's published files: mirrors, resumed transfers, and a checksum written down beside the file."""

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from cta.alone import alone
from cta.data.files import write_whole
from cta.data.npz import NpzReader
from cta.data.progress import Advance, progress
from cta.errors import CtaError

PUBLISHED = "https://rail.eecs.berkeley.edu/datasets/ogbench"
MIRRORS_VARIABLE = "CTA_DATA_MIRRORS"
BLOCK = 1 << 20
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3


class _Unreachable(Exception):
    """A mirror that cannot give the file; the message says why."""


def mirrors(extra: Sequence[str] = ()) -> list[str]:
    """Where to look, in order: the caller's, those of CTA_DATA_MIRRORS (separated by spaces), OGBench's own server."""
    found = [*extra, *os.environ.get(MIRRORS_VARIABLE, "").split(), PUBLISHED]
    return [address.rstrip("/") for address in dict.fromkeys(found)]


def record_path(path: Path) -> Path:
    """The small JSON beside a downloaded file: address, size and SHA-256."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a downloaded file, if there is one."""
    try:
        record = json.loads(record_path(path).read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(name: str, folder: Path, *, extra_mirrors: Sequence[str] = (), advice: str = "") -> list[Path]:
    """Fetch NAME-val.npz and NAME.npz into `folder`; files that are there stay. Returns both paths, training first.

    `advice` ends the line that says there is no network.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise CtaError(f"'{name}' is not the name of a dataset such as scene-play-v0")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CtaError(f"cannot create {folder}: {error.strerror or error}") from None
    paths = [folder / f"{name}.npz", folder / f"{name}-val.npz"]
    for path in reversed(paths):  # validation first: a training file always has its other half
        if not path.exists():
            _fetch_alone(path, mirrors(extra_mirrors), advice=advice)
    return paths


def _fetch_alone(path: Path, addresses: Sequence[str], *, advice: str) -> None:
    """Two processes must not write into one partial file; the second finds what the first has fetched."""
    try:
        with alone(path, waiting=f"waiting for another process that downloads {path.name}"):
            if not path.exists():
                _fetch(path, addresses, advice=advice)
    except OSError as error:
        raise CtaError(f"cannot write into {path.parent}: {error.strerror or error}") from None


def _fetch(path: Path, addresses: Sequence[str], *, advice: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    reasons = []
    for address in addresses:
        url = f"{address}/{path.name}"
        for _ in range(ATTEMPTS):
            before = partial.stat().st_size if partial.exists() else 0
            try:
                _transfer(url, partial)
            except _Unreachable as error:
                reasons.append(f"{address}: {error}")
                if not partial.exists() or partial.stat().st_size <= before:
                    break  # nothing came: another mirror, rather than the same again
            except OSError as error:
                raise CtaError(f"cannot write {partial}: {error.strerror or error}") from None
            else:
                _accept(partial, path, url)
                return
    raise CtaError(f"cannot download {path.name} ({'; '.join(dict.fromkeys(reasons))}). {advice}".strip())


def _tag_file(partial: Path) -> Path:
    """Which version of a file the partial one is of, in the words of the server; there until it is accepted."""
    return partial.with_name(f"{partial.name}.tag")


def _transfer(url: str, partial: Path) -> None:
    """Bring `partial` to its full length, from where an earlier transfer of the same version stopped."""
    tag_file = _tag_file(partial)
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"User-Agent": "cta"}
    if have and tag_file.exists():
        headers |= {"Range": f"bytes={have}-", "If-Range": tag_file.read_text()}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and "Range" in headers:
            if error.headers.get("Content-Range") == f"bytes */{have}":  # it was complete, but not yet accepted
                return
            partial.unlink()  # it is not what is there: begin anew
            _transfer(url, partial)
            return
        raise _Unreachable(f"HTTP {error.code} {error.reason}") from None
    except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
        raise _Unreachable(str(getattr(error, "reason", error))) from None
    with response:
        resumed = response.status == 206
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if tag and not resumed:
            tag_file.write_text(tag)
        length = response.headers.get("Content-Length")
        total = int(length) + (have if resumed else 0) if length else None
        start = have if resumed else 0
        with (
            open(partial, "ab" if resumed else "wb") as file,
            progress(url.rsplit("/", 1)[1], total=total, unit="B", done=start) as advance,
        ):
            _copy(response, file, advance)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and partial.stat().st_size != total:
        raise _Unreachable(f"the transfer stopped at {partial.stat().st_size} of {total} bytes")


def _copy(response: Any, file: Any, advance: Advance) -> None:
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, HTTPException) as error:
            raise _Unreachable(f"the transfer broke off ({error})") from None
        if not block:
            return
        file.write(block)
        advance(len(block))


def _accept(partial: Path, path: Path, url: str) -> None:
    """Check what came, write its record, and give it its name."""
    known = (read_record(path) or {}).get("sha256")
    found = sha256_of(partial)
    try:
        if known not in (None, found):
            raise CtaError(
                f"{url} has SHA-256 {found}, {record_path(path).name} says {known}: "
                "the file changed or was damaged; delete the record to accept it"
            )
        with NpzReader(partial) as file:
            if "observations" not in file.keys:
                raise CtaError(f"{url} is an npz file, but not a dataset")
    except CtaError:
        partial.unlink()
        _tag_file(partial).unlink(missing_ok=True)
        raise
    record = {"url": url, "bytes": partial.stat().st_size, "sha256": found}
    write_whole(record_path(path), json.dumps(record, indent=2) + "\n")
    os.replace(partial, path)
    _tag_file(partial).unlink(missing_ok=True)
