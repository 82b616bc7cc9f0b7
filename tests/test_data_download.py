"""Downloading against a local server, listing and describing datasets."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from cta.cli import carry_out
from cta.cli.data import origin
from cta.data import TrajectoryDataset
from cta.data import download as download_module
from cta.data.download import download, read_record
from cta.envs.datasets import open_dataset, simulator_notice
from cta.errors import CtaError
from ogbench_forms import compact, regular

NAME = "antmaze-medium-navigate-v0"
CLOSED = "http://127.0.0.1:9"  # the discard port: nobody listens


@dataclass
class Shelf:
    """What the server has, what it was asked for, and how it misbehaves."""

    files: dict[str, bytes]
    address: str = ""
    tag: str = '"one"'
    cut_after: int | None = None
    headers: dict[str, str | None] = field(default_factory=dict)
    """Sent instead of the right ones; None: not sent."""
    ignores_if_range: bool = False
    pause: float = 0.0
    """Seconds before the second half of a file comes."""
    ranges: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Iterator[Shelf]:
    monkeypatch.setattr(download_module, "PUBLISHED", CLOSED)
    monkeypatch.delenv("CTA_DATA_MIRRORS", raising=False)
    with serving(tmp_path) as content:
        yield content


@contextmanager
def serving(tmp_path, seed: int = 0) -> Iterator[Shelf]:
    """A server with the two files of a dataset."""
    rng = np.random.default_rng(seed)
    files = {}
    for suffix in ("", "-val"):
        data = TrajectoryDataset.from_arrays(
            rng.normal(size=(300, 29)), rng.uniform(-1, 1, (300, 8)), episode_lengths=[100, 200]
        )
        data.to_npz(tmp_path / "source.npz")
        files[f"/{NAME}{suffix}.npz"] = (tmp_path / "source.npz").read_bytes()
    content = Shelf(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            content.ranges.append((self.path, wanted))
            body = content.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = 0
            if wanted and (content.ignores_if_range or self.headers.get("If-Range") == content.tag):
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1))  # pyright: ignore
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            headers = {"Content-Length": str(len(body) - start), "ETag": content.tag}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            for name, value in (headers | content.headers).items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            rest = body[start:] if content.cut_after is None else body[start:][: content.cut_after]
            self.wfile.write(rest[: len(rest) // 2])
            time.sleep(content.pause)
            self.wfile.write(rest[len(rest) // 2 :])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    content.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield content
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_both_files_arrive_with_their_records(shelf, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CTA_DATA_MIRRORS", f"{CLOSED} {shelf.address}/")
    folder = tmp_path / "data"
    assert carry_out("data", ["download", NAME, "--dataset-dir", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / f"{NAME}.npz"), str(folder / f"{NAME}-val.npz")]
    for suffix in ("", "-val"):
        path = folder / f"{NAME}{suffix}.npz"
        assert path.read_bytes() == shelf.files[f"/{path.name}"]
        record = read_record(path)
        assert record is not None and set(record) == {"url", "bytes", "sha256"}
        assert record["url"] == f"{shelf.address}/{path.name}"
        assert record["bytes"] == path.stat().st_size
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
    asked = len(shelf.ranges)
    assert carry_out("data", ["download", NAME, "--dataset-dir", str(folder)]) == 0  # what is there stays
    assert len(shelf.ranges) == asked


def test_a_broken_transfer_is_resumed(shelf, tmp_path):
    shelf.cut_after = 20_000
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    for path in paths:
        assert path.read_bytes() == shelf.files[f"/{path.name}"]
    assert [wanted for path, wanted in shelf.ranges if path == f"/{NAME}.npz"] == [None, "bytes=20000-", "bytes=40000-"]


def test_a_later_command_resumes_too(shelf, tmp_path):
    shelf.cut_after = 5_000
    with pytest.raises(CtaError, match="the transfer stopped at 15000 of"):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert (tmp_path / "data" / f".{NAME}-val.npz.part").stat().st_size == 15_000
    shelf.cut_after = None
    shelf.ranges.clear()
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert shelf.ranges[0] == (f"/{NAME}-val.npz", "bytes=15000-")
    assert paths[1].read_bytes() == shelf.files[f"/{NAME}-val.npz"]


def killed_before(what, folder, shelf):
    """A download whose process ends at the moment it would call `what`."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(what, killed)
        download(NAME, folder, extra_mirrors=[shelf.address])


@pytest.mark.parametrize("what", ["_accept", "sha256_of", "NpzReader", "write_json"])
def test_a_transfer_that_was_complete_is_accepted_later(shelf, tmp_path, what):
    killed_before(f"cta.data.download.{what}", tmp_path / "data", shelf)
    body = shelf.files[f"/{NAME}-val.npz"]
    assert (tmp_path / "data" / f".{NAME}-val.npz.part").read_bytes() == body
    shelf.ranges.clear()
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert shelf.ranges == [(f"/{NAME}-val.npz", f"bytes={len(body)}-"), (f"/{NAME}.npz", None)]
    assert [path.read_bytes() for path in paths] == [shelf.files[f"/{path.name}"] for path in paths]
    assert not [path for path in (tmp_path / "data").iterdir() if path.name.startswith(".")]


def test_more_than_the_server_has_is_fetched_anew(shelf, tmp_path):
    killed_before("cta.data.download._accept", tmp_path / "data", shelf)
    with (tmp_path / "data" / f".{NAME}-val.npz.part").open("ab") as partial:
        partial.write(b"more")
    shelf.ranges.clear()
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert [wanted is None for _, wanted in shelf.ranges] == [False, True, True]
    assert paths[1].read_bytes() == shelf.files[f"/{NAME}-val.npz"]


def test_two_downloads_at_once_leave_one_whole_file(shelf, tmp_path):
    shelf.pause = 0.3
    folder = tmp_path / "data"
    found: list[object] = []

    def fetch() -> None:
        try:
            found.append(download(NAME, folder, extra_mirrors=[shelf.address]))
        except CtaError as error:
            found.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[folder / f"{NAME}.npz", folder / f"{NAME}-val.npz"]] * 3
    assert (folder / f"{NAME}.npz").read_bytes() == shelf.files[f"/{NAME}.npz"]
    assert [path for path, _ in shelf.ranges] == [f"/{NAME}-val.npz", f"/{NAME}.npz"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(shelf, tmp_path):
    shelf.cut_after = 5_000
    with pytest.raises(CtaError):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    shelf.cut_after, shelf.tag = None, '"two"'
    shelf.files[f"/{NAME}-val.npz"] = shelf.files[f"/{NAME}.npz"]
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert paths[1].read_bytes() == shelf.files[f"/{NAME}.npz"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": None},
        {"Content-Range": "bytes 4999-9999999/10000000"},
        {"Content-Range": "bytes 15000-15999/999999"},
        {"Content-Range": "bytes " + "9" * 5000 + "-1/2"},
        {"ETag": '"another"'},
        {"ETag": None},
    ],
    ids=["no range", "too early", "too short", "absurd", "other version", "no version"],
)
def test_a_part_that_does_not_fit_is_not_spliced(shelf, tmp_path, headers):
    shelf.cut_after = 5_000
    with pytest.raises(CtaError, match="the transfer stopped at 15000"):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    shelf.cut_after, shelf.ignores_if_range, shelf.headers = None, True, headers
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert [path.read_bytes() for path in paths] == [shelf.files[f"/{path.name}"] for path in paths]
    assert [wanted for path, wanted in shelf.ranges if "-val" in path][-2:] == ["bytes=15000-", None]


@pytest.mark.parametrize("tag", [b"\xff\xfe", b'"a"\r\nX: y', '"→"'.encode(), b""])
def test_a_damaged_tag_begins_again(shelf, tmp_path, tag):
    shelf.cut_after = 5_000
    with pytest.raises(CtaError):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    shelf.cut_after = None
    (tmp_path / "data" / f".{NAME}-val.npz.part.tag").write_bytes(tag)
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert [path.read_bytes() for path in paths] == [shelf.files[f"/{path.name}"] for path in paths]


def test_another_version_under_the_same_tag_is_found_by_testing_the_archive(shelf, tmp_path):
    shelf.cut_after = 5_000
    with pytest.raises(CtaError):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    shelf.cut_after = None
    shelf.files[f"/{NAME}-val.npz"] = shelf.files[f"/{NAME}.npz"]  # of the same length, or nearly
    paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert paths[1].read_bytes() == shelf.files[f"/{NAME}.npz"]


def test_a_damaged_file_is_taken_from_the_next_mirror(shelf, tmp_path):
    good = dict(shelf.files)
    damaged = bytearray(good[f"/{NAME}-val.npz"])
    damaged[2000] ^= 255
    with serving(tmp_path) as other:
        assert other.files == good
        shelf.files[f"/{NAME}-val.npz"] = bytes(damaged)
        with pytest.raises(CtaError, match=rf"{NAME}-val.npz.*damaged") as told:
            download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
        assert "\n" not in str(told.value) and list((tmp_path / "data").iterdir()) == []
        paths = download(NAME, tmp_path / "data", extra_mirrors=[shelf.address, other.address])
        assert [path.read_bytes() for path in paths] == [good[f"/{path.name}"] for path in paths]
        assert read_record(paths[1])["url"].startswith(other.address)


@pytest.mark.parametrize("length", ["many", "-5", "9" * 5000, str(10**17)])
def test_an_absurd_length_is_one_line(shelf, tmp_path, length):
    shelf.headers = {"Content-Length": length}
    with pytest.raises(CtaError, match="the server announces") as told:
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert "\n" not in str(told.value) and len(str(told.value)) < 400


def test_a_full_disk_at_the_end_keeps_what_came(shelf, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise CtaError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cta.data.download.write_json", full)
        with pytest.raises(CtaError, match="the disk is full"):
            download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert (tmp_path / "data" / f".{NAME}-val.npz.part").read_bytes() == shelf.files[f"/{NAME}-val.npz"]


def test_a_validation_file_of_another_width_is_a_problem(tmp_path, capsys):
    for suffix, width in (("", 3), ("-val", 4)):
        rows = np.zeros((4, width), np.float32), np.zeros((4, 2), np.float32)
        TrajectoryDataset.from_arrays(*rows, episode_lengths=[4]).to_npz(tmp_path / f"mine{suffix}.npz")
    with pytest.raises(CtaError, match=r"mine-val has .*\(4,\).*, mine has .*\(3,\).*do not belong together"):
        open_dataset(str(tmp_path / "mine.npz"))
    assert carry_out("data", ["info", str(tmp_path / "mine.npz")]) == 1
    assert "they do not belong together" in capsys.readouterr().out


def test_a_known_checksum_is_checked(shelf, tmp_path, capsys):
    folder = tmp_path / "data"
    train, val = download(NAME, folder, extra_mirrors=[shelf.address])
    val.unlink()
    shelf.files[f"/{NAME}-val.npz"] = train.read_bytes()
    with pytest.raises(CtaError, match="SHA-256"):
        download(NAME, folder, extra_mirrors=[shelf.address])
    assert not val.exists()
    assert carry_out("data", ["info", str(train)]) == 0
    train.write_bytes(shelf.files[f"/{NAME}.npz"] + b"\0")
    assert carry_out("data", ["info", str(train)]) == 1
    assert "SHA-256 is not the one recorded" in capsys.readouterr().out


def test_what_is_not_a_dataset_is_refused(shelf, tmp_path):
    shelf.files[f"/{NAME}-val.npz"] = b"<html>please log in</html>"
    with pytest.raises(CtaError, match="not an npz file"):
        download(NAME, tmp_path / "data", extra_mirrors=[shelf.address])
    assert list((tmp_path / "data").iterdir()) == []


def test_no_network_is_one_line_that_offers_to_generate(shelf, tmp_path):
    advice = re.escape(f"`cta data generate scene-play-v0 --out {tmp_path}`")
    with pytest.raises(CtaError, match=rf"cannot download scene-play-v0-val\.npz.*{advice}") as one:
        carry_out("data", ["download", "scene-play-v0", "--dataset-dir", str(tmp_path)])
    assert "\n" not in str(one.value)
    with pytest.raises(CtaError, match="HTTP 404") as two:
        carry_out(
            "data",
            ["download", "humanoidmaze-large-navigate-v0", "--mirror", shelf.address, "--dataset-dir", str(tmp_path)],
        )
    assert "generate" not in str(two.value)
    with pytest.raises(CtaError, match="generated on first use"):
        carry_out("data", ["download", "desk-play-v0"])


def test_advice_for_missing_data_fills_the_folder_that_was_asked(tmp_path, monkeypatch):
    mine = tmp_path / "my data"
    with pytest.raises(CtaError) as elsewhere:
        open_dataset("scene-play-v0", dataset_dir=mine)
    assert f"`cta data generate scene-play-v0 --out '{mine}'`" in str(elsewhere.value)
    assert f"`cta data download scene-play-v0 --dataset-dir '{mine}'`" in str(elsewhere.value)
    monkeypatch.setenv("OGBENCH_DATA_DIR", str(mine))
    for folder in (None, mine):
        with pytest.raises(CtaError, match="`cta data generate scene-play-v0` or `cta data download scene-play-v0`"):
            open_dataset("scene-play-v0", dataset_dir=folder)


def test_the_list_has_the_sizes_of_the_files(tmp_path, capsys):
    rows = np.zeros((5, 40), np.float32), np.zeros((5, 5), np.float32)
    data = TrajectoryDataset.from_arrays(*rows, episode_lengths=[2, 3])
    data.to_npz(tmp_path / "scene-play-v0.npz")
    np.savez(tmp_path / "scene-noisy-v0.npz", **compact(data))
    np.savez(tmp_path / "cube-single-play-v0.npz", **regular(data))
    assert carry_out("data", ["list", "--dataset-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {words[0]: words[1] for line in lines if len(words := line.split()) >= 4}
    assert {found[name] for name in ("scene-play-v0", "scene-noisy-v0", "cube-single-play-v0")} == {"3"}
    assert found["cube-double-play-v0"] == "1.0M"


def test_the_list_says_generated_published_or_absent(tmp_path, capsys):
    rows = np.zeros((3, 40), np.float32), np.zeros((3, 5), np.float32)
    published = TrajectoryDataset.from_arrays(*rows, episode_lengths=[3])
    generated = TrajectoryDataset.from_arrays(*rows, episode_lengths=[3], provenance={"created_by": "cta"})
    published.to_npz(tmp_path / "scene-play-v0.npz")
    generated.to_npz(tmp_path / "scene-noisy-v0.npz")
    (tmp_path / "cube-single-play-v0.npz").write_bytes(b"broken")
    assert carry_out("data", ["list", "--dataset-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {words[0]: words[2] for line in lines if len(words := line.split()) >= 4}
    assert found["scene-play-v0"] == "published"
    assert found["scene-noisy-v0"] == "generated"
    assert found["cube-double-play-v0"] == "absent"
    assert found["cube-single-play-v0"] == "damaged"
    assert origin(tmp_path / "nothing.npz") == "absent"


def test_info_describes_and_finds_problems(tmp_path, capsys):
    rng = np.random.default_rng(0)
    good = TrajectoryDataset.from_arrays(
        rng.normal(size=(7, 40)), rng.uniform(-1, 1, (7, 5)), episode_lengths=[3, 4], provenance={"seed": 5}
    )
    good.to_npz(tmp_path / "scene-play-v0.npz")
    assert carry_out("data", ["info", "scene-play-v0", "--dataset-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for part in ("(7, 40)", "float32", "2 episodes of 3 to 4 rows, 5 transitions", "  seed: 5", "no validation file"):
        assert part in text
    arrays = regular(good)
    arrays["actions"][1, 2] = np.nan
    np.savez(tmp_path / "scene-play-v0-val.npz", **arrays)
    good.to_npz(tmp_path / "cube-single-play-v0.npz")
    assert carry_out("data", ["info", str(tmp_path / "scene-play-v0.npz")]) == 1
    assert "actions has nan at row 1, column 2" in capsys.readouterr().out
    assert carry_out("data", ["info", "cube-single-play-v0", "--dataset-dir", str(tmp_path)]) == 1
    assert "belongs to another environment" in capsys.readouterr().out
    (tmp_path / "mine.npz").write_bytes(b"junk")
    assert carry_out("data", ["info", str(tmp_path / "mine.npz")]) == 1
    assert "not an npz file" in capsys.readouterr().out
    with pytest.raises(CtaError, match="no such file"):
        carry_out("data", ["info", str(tmp_path / "absent.npz")])


@pytest.mark.parametrize(
    ("record", "here", "speaks"),
    [
        (None, "3.3.7", False),
        (None, "3.5.0", True),
        ({"versions": {"mujoco": "3.3.7"}}, "3.4.0", False),
        ({"versions": {"mujoco": "3.3.7"}}, "4.0.1", True),
        ({"versions": {"mujoco": "3.6.0"}}, "3.3.7", True),
        ({"versions": {"jax": "0.10.2"}}, "4.0.0", False),
        ({"source": {"provenance": None}}, "3.5.0", True),
        ({"source": {"provenance": {"versions": {"mujoco": "3.3.7"}}}}, "3.5.0", True),
        # What strangers write is unknown, and so is a simulator that is not there.
        ({"versions": {"mujoco": "x"}}, "3.5.0", False),
        ({"versions": {"mujoco": "3"}}, "3.5.0", False),
        ({"versions": {"mujoco": 3.3}}, "3.5.0", False),
        ({"versions": {"mujoco": "9" * 5000 + ".1"}}, "3.5.0", False),
        ({"versions": "3.3.7"}, "3.5.0", False),
        ({"versions": None}, "3.5.0", False),
        ({"source": "my robot"}, "3.5.0", False),
        ({"source": {"provenance": "my robot"}}, "3.5.0", False),
        (None, "absent", False),
    ],
)
def test_data_and_simulator_across_the_change_of_dynamics_are_noted(monkeypatch, record, here, speaks):
    monkeypatch.setattr("cta.io.provenance.version", lambda _: here)
    assert (simulator_notice(record) is not None) == speaks


@pytest.mark.parametrize("text", ['{"versions": "x"}', '{"source": "x"}', "1" * 5000, "[" * 50_000])
def test_records_of_strangers_do_not_disturb(tmp_path, capsys, text):
    arrays = {"observations": np.zeros((3, 2), np.float32), "actions": np.zeros((3, 2), np.float32)}
    np.savez(tmp_path / "mine.npz", **arrays, terminals=np.arange(3) == 2, provenance=np.array(text))
    assert carry_out("data", ["info", str(tmp_path / "mine.npz")]) == 0
    assert "1 episodes of 3 rows" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["generate", "download", "list", "info"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as done:
        carry_out("data", [command, "--help"])
    assert done.value.code == 0
    assert f"\n  cta data {command}" in capsys.readouterr().out
