"""Processes that work on the same files at the same time."""

import errno
import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cta.errors import CtaError
from cta.grid.run_plan import work_lock
from cta.io.csv_log import CsvLog
from cta.io.files import file_lock

EXCHANGE = """
import sys
from pathlib import Path
from cta.io.csv_log import CsvLog
path, writer = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
log = CsvLog(path, ("step", "value"))
for number in range(100):
    step = f"{writer}{number}"
    log.exchange(lambda row: row["step"] == step, [{"step": step, "value": 1}])
"""


def test_rows_of_processes_that_score_one_run_are_all_kept(tmp_path):
    path = tmp_path / "evaluate.csv"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", EXCHANGE, str(path), name], **pipes) for name in "1234"]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=100)
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    steps = [int(row["step"]) for row in CsvLog(path).read()]
    assert sorted(steps) == sorted(int(f"{name}{number}") for name in "1234" for number in range(100))
    assert path.read_text().count("step,value") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["evaluate.csv"]


def test_the_second_says_that_it_waits_and_comes_after_the_first(tmp_path, capsys):
    order = []

    def second() -> None:
        with file_lock(tmp_path / "x", waiting="waiting for the first"):
            order.append("second")

    thread = threading.Thread(target=second)
    with file_lock(tmp_path / "x"):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"] and capsys.readouterr().err == "waiting for the first\n"
    with file_lock(tmp_path / "x", waiting="waiting for nobody"):
        pass
    assert capsys.readouterr().err == "" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_without_locks_nobody_waits_but_other_faults_are_told(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    if number == errno.EIO:
        with pytest.raises(OSError, match="no"), file_lock(Path(tmp_path) / "x"):
            pass
    else:
        with file_lock(tmp_path / "x"), file_lock(tmp_path / "x"):
            pass


def test_a_work_folder_is_waited_for_and_then_given_up(tmp_path, capsys):
    with work_lock(tmp_path) as lock:
        assert (tmp_path / "lock").samefile(f"/proc/self/fd/{lock}")
        with pytest.raises(CtaError, match="another plan is carried out in"), work_lock(tmp_path, patience=0.1):
            pass
    assert capsys.readouterr().err == f"waiting for another process in {tmp_path} to end\n"
    with work_lock(tmp_path, patience=0.0):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_work_folder_without_locks_is_nobody_elses(tmp_path, monkeypatch, capsys, number):
    def refuse(*_):
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    if number == errno.EIO:
        with pytest.raises(CtaError, match=r"cannot work here \(no\)"), work_lock(tmp_path):
            pass
    else:
        with work_lock(tmp_path):
            pass
    assert capsys.readouterr().err == ""
