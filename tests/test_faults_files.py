"""What lies in a run directory survives: rows are whole, checkpoints verified, old ones pruned, one owner at a time."""

import csv
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from cta.errors import CtaError
from cta.experiment import run_config
from cta.experiment import run_dir as run_dir_module
from cta.experiment.background import BackgroundEvaluation
from cta.experiment.console import TensorBoardLog
from cta.experiment.run_dir import RunDir, RunLock
from cta.experiment.scoring import steps_to_keep
from cta.io.csv_log import CsvLog
from cta.training.checkpoints import Checkpoints, Damaged, healthy_seeds
from cta.training.learner import TrainState


def state_of(step, *, weights=(1.0, 2.0), bad=(0, 0)):
    """Two seeds of an agent with one weight each."""
    networks = {"net": np.array([[weights[0]], [weights[1]]], np.float32)}
    steps, bad = np.full(2, step, np.int32), np.array(bad)[:, None]
    return TrainState(networks, {}, {"net": networks["net"] * 3}, steps, {"total_loss": steps * 1.0}, bad)


STRUCTURE = TrainState(
    {"net": np.zeros(1)}, {}, {"net": np.zeros(1)}, np.zeros(()), {"total_loss": np.zeros(())}, np.zeros(1)
)


@pytest.fixture
def saved(tmp_path):
    """Checkpoints at steps 10 and 20."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", create=True)
    for step in (10, 20):
        checkpoints.save(state_of(step))
    checkpoints.wait()
    yield checkpoints
    checkpoints.close()


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_checkpoint_comes_back_as_it_was(saved):
    assert saved.steps() == [10, 20]
    loaded = saved.load(20, STRUCTURE)
    np.testing.assert_array_equal(loaded.networks["net"], [[1], [2]])
    np.testing.assert_array_equal(loaded.optimizer["net"], [[3], [6]])
    assert loaded.step.tolist() == [20, 20] and loaded.bad.shape == (2, 1)


@pytest.mark.parametrize("how", ["truncated", "flipped", "removed"])
def test_a_damaged_checkpoint_is_noticed_whichever_file_it_is(saved, how):
    noticed = []
    files = files_of(saved.folder / "20")
    for path in files if how != "removed" else [path for path in files if path.name != "manifest.json"]:
        before = path.read_bytes()
        half = len(before) // 2
        if how == "removed":
            path.unlink()
        elif how == "truncated":
            path.write_bytes(before[:half])
        else:
            path.write_bytes(before[:half] + bytes([before[half] ^ 64]) + before[half + 1 :])
        with pytest.raises(Damaged) as caught:
            saved.load(20, STRUCTURE)
        assert "\n" not in str(caught.value) and "checkpoints/20" in str(caught.value)
        path.write_bytes(before)
        noticed.append(path.name)
    assert len(noticed) > 10
    saved.load(20, STRUCTURE)


def test_arrays_that_are_not_those_saved_are_noticed(saved):
    manifest = saved.folder / "20" / "manifest.json"
    values = json.loads(manifest.read_text())
    for arrays in (values["arrays"] | {"networks/net": "0" * 64}, {}):  # also one that the manifest does not know
        manifest.write_text(json.dumps(values | {"arrays": arrays}))
        with pytest.raises(Damaged, match="'networks/net' is not what was saved"):
            saved.load_networks(20, {"net": np.zeros(1)})
    aside = saved.set_aside(20)
    assert saved.steps() == [10] and aside.name == "damaged-20" and aside.is_dir()
    saved.save(state_of(20))
    saved.wait()
    assert saved.steps() == [10, 20] and saved.load(20, STRUCTURE).step[0] == 20


def test_a_checkpoint_of_a_newer_layout_is_not_called_damaged(saved):
    (saved.folder / "20" / "manifest.json").write_text(json.dumps({"layout": 99, "cta": "9.9"}))
    with pytest.raises(CtaError, match=r"newer cta \(9.9\)") as caught:
        saved.load(20, STRUCTURE)
    assert not isinstance(caught.value, Damaged)


def test_a_manifest_is_needed_unless_one_says_otherwise(saved, capfd):
    """Without it nobody would notice a flipped byte."""
    for step in (10, 20):
        (saved.folder / str(step) / "manifest.json").unlink()
        with pytest.raises(CtaError, match=f"checkpoints/{step}: manifest.json is missing.*--unverified") as caught:
            saved.load_networks(step, {"net": np.zeros(1)})
        assert not isinstance(caught.value, Damaged)
    told = []
    old = Checkpoints(saved.folder, unverified=True, notice=told.append)
    assert old.load(20, STRUCTURE).step.tolist() == [20, 20] and old.load(10, STRUCTURE).bad.shape == (2, 1)
    assert len(told) == 1 and "used unverified" in told[0]


def test_weights_belong_to_settings(tmp_path):
    config = run_config("gcbc", "desk-play-v0", seeds=(0, 1))

    def opened(config):
        return Checkpoints(tmp_path, create=True, config=config, notice=told.append)

    told = []
    store = opened(config)
    store.save(state_of(10))
    store.wait()
    assert store.load(10, STRUCTURE).step[0] == 10 and not told
    for seeds in ((0, 3), (1, 0), (0, 1, 2)):
        with pytest.raises(CtaError, match=r"was saved with seeds \[0, 1\] and config.json says"):
            opened(replace(config, seeds=seeds)).load(10, STRUCTURE)
    with pytest.raises(CtaError, match=r"'networks/net' has the shape \(2, 1\), .* want \(5,\) per seed"):
        store.load_networks(10, {"net": np.zeros(5)})
    opened(replace(config, agent=replace(config.agent, lr=0.5))).load(10, STRUCTURE)
    assert told == [f"notice: {tmp_path}: the agent's lr was 0.001 when weights were saved and is 0.5 now"]
    manifest = json.loads((tmp_path / "10" / "manifest.json").read_text())
    for name in ("seeds", "agent", "settings"):
        del manifest[name]
    (tmp_path / "10" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CtaError, match="not the checkpoint of 3 seeds"):
        opened(replace(config, seeds=(0, 1, 2))).load(10, STRUCTURE)


def test_half_written_folders_are_never_steps_and_are_removed(saved):
    for name in (".writing-30", ".writing-30.orbax-checkpoint-tmp", ".deleted-5"):
        (saved.folder / name / "networks").mkdir(parents=True)
    assert saved.steps() == [10, 20]
    saved.clear_remains()
    assert sorted(path.name for path in saved.folder.iterdir()) == ["10", "20"]


def test_seeds_with_bad_numbers_are_marked(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", create=True)
    for state in (state_of(1), state_of(2, weights=(1.0, np.nan)), state_of(3, bad=(3, 0))):
        checkpoints.save(state)
    checkpoints.close()
    marks = [healthy_seeds(tmp_path / "c" / str(step)) for step in (1, 2, 3)]
    assert marks == [[True, True], [True, False], [False, True]]
    assert healthy_seeds(tmp_path / "nothing") is None


def test_retention():
    steps = list(range(10, 130, 10))
    evaluated = [40, 80, 120]
    well = {step: [True, True] for step in steps}

    def kept(**changes):
        options = {"last": 2, "planned": steps, "evaluated": evaluated, "unscored": [], "healthy": well} | changes
        return sorted(steps_to_keep(steps, **options))

    assert kept() == [40, 80, 110, 120]
    assert kept(last=0) == steps
    assert kept(last=1, evaluated=[]) == [120]
    assert kept(evaluated=[20, 40, 60, 80, 120]) == [60, 80, 110, 120]
    assert kept(unscored=[20, 130]) == [20, 40, 80, 110, 120]
    # The second seed went bad after step 50: what it was then stays for good.
    assert kept(healthy={step: [True, step <= 50] for step in steps}) == [40, 50, 80, 110, 120]
    assert kept(healthy={}) == [40, 80, 110, 120]
    # What a signal left at 110 pushes no other out, and at 120 stays while it is the newest.
    assert kept(planned=[100, 120], evaluated=[]) == [100, 120]
    assert kept(planned=[100, 110], evaluated=[]) == [100, 110, 120]


def test_pruning_deletes_and_a_failing_write_leaves_nothing(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "c", create=True, keep=lambda steps: steps[-1:])
    for step in (1, 2, 3):
        checkpoints.save(state_of(step))
    checkpoints.wait()
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["3"]

    def full(*_, **__):
        (tmp_path / "c" / ".writing-4").mkdir()
        raise ValueError("something long\nRESOURCE_EXHAUSTED: No space left on device\n")

    monkeypatch.setattr("cta.training.checkpoints._write_arrays", full)
    checkpoints.save(state_of(4))
    with pytest.raises(CtaError, match=r"could not be written \(No space left on device\)$"):
        checkpoints.wait()
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["3"]
    checkpoints.close()


def test_half_a_line_is_never_read_and_never_joined(tmp_path):
    log = CsvLog(tmp_path / "a.csv", ("x", "y"))
    log.append([{"x": 1, "y": 0.1}, {"x": 2, "y": float("inf")}])
    whole = log.path.read_bytes()
    for cut in range(len(whole)):
        log.path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        again = CsvLog(log.path, ("x", "y"))
        assert len(again.read()) == max(0, lines - 1)
        again.append([{"x": 9, "y": 9}])
        rows = list(csv.reader(log.path.read_text().splitlines()))
        assert rows[0] == ["x", "y"] and rows[-1] == ["9", "9"] and len(rows) == max(0, lines - 1) + 2
        again.keep(lambda row: row["x"] == "9")
        assert log.path.read_text() == "x,y\n9,9\n"


def test_rows_that_find_no_room_leave_the_file_as_it_was(tmp_path):
    """A real limit on the size of files, in a process of its own."""
    script = (
        "import resource, sys; from pathlib import Path; from cta.io.csv_log import CsvLog\n"
        "log = CsvLog(Path(sys.argv[1]), ('x',)); log.append([{'x': 1}])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: log.append([{'x': i} for i in range(100)])\n"
        "except OSError as error: print(error.strerror)\n"
    )
    path = tmp_path / "a.csv"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n" and path.read_text() == "x\n1\n"


def test_tensorboard_is_told_where_a_resumed_run_begins(tmp_path):
    from tensorboardX.proto import event_pb2

    log = TensorBoardLog(tmp_path, step=40)
    log.scalars(3, 44, {"training/total_loss": 0.5})
    log.close()
    [path] = tmp_path.glob("seed_3/events.out.tfevents.*")
    content, events = path.read_bytes(), []
    while content:
        size = int.from_bytes(content[:8], "little")
        events.append(event_pb2.Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    assert (events[1].session_log.status, events[1].step) == (event_pb2.SessionLog.START, 41)
    assert (events[2].step, events[2].summary.value[0].simple_value) == (44, 0.5)


def test_threads_that_log_one_seed_share_its_event_file(tmp_path, monkeypatch):
    from tensorboardX import event_file_writer

    opened, original = [], event_file_writer.EventsWriter

    def slowly(*arguments):
        opened.append(arguments)
        time.sleep(0.2)
        return original(*arguments)

    monkeypatch.setattr(event_file_writer, "EventsWriter", slowly)
    log = TensorBoardLog(tmp_path)
    threads = [threading.Thread(target=log.scalars, args=(0, 1, {name: 1.0})) for name in ("loss", "success")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len(opened) == 1
    [path] = tmp_path.glob("seed_0/events.out.tfevents.*")
    assert all(name in path.read_bytes() for name in (b"loss", b"success"))


def test_slow_scoring_does_not_hold_up_a_stop():
    begun, go_on = threading.Event(), threading.Event()
    scored = []

    def score(step, networks):
        begun.set()
        go_on.wait(60)
        scored.append(step)

    background = BackgroundEvaluation(score, depth=1)
    background.submit(1, [])
    assert begun.wait(60)
    background.submit(2, [])
    background.submit(3, [], give_up=lambda: True)  # no room, and somebody wants to stop
    assert background.pending == 2 and not background.finish(give_up=lambda: True)
    go_on.set()
    assert background.finish() and scored == [1, 2] and background.pending == 0
    background.cancel()
    background.join()


HOLD = """
import sys, time
from pathlib import Path
from cta.experiment.background import BackgroundEvaluation
from cta.experiment.run_dir import RunLock
RunLock(Path(sys.argv[1]), say=lambda text: print(text, flush=True))
print("held", flush=True)
time.sleep(120)
"""


def test_a_living_process_keeps_its_directory_and_a_killed_one_does_not(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(CtaError, match=rf"in use by process {holder.pid} on {socket.gethostname()}"):
            RunLock(tmp_path)
        holder.kill()
    said = []
    mine = RunLock(tmp_path, say=said.append)
    assert said == [f"taking over from process {holder.pid} on {socket.gethostname()}, which is gone"]
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    mine.release()
    assert not (tmp_path / "lock").exists()
    RunLock(tmp_path, say=said.append).release()
    assert len(said) == 1


def test_unfinished_files_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    """The driver of a plan writes its clock into a run directory that a training process is just taking."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for owner in (os.getpid(), gone.pid, 10**20, "elsewhere"):
        (tmp_path / f".clock.json.{owner}.tmp").touch()
    (tmp_path / "notes.tmp").touch()
    run = RunDir(tmp_path)
    run.acquire()
    run.release()
    assert {path.name for path in tmp_path.iterdir()} == {f".clock.json.{os.getpid()}.tmp", "notes.tmp"}


def test_files_are_written_while_others_take_and_leave_the_directory(tmp_path):
    """A second process writes 200 times in a directory that this one takes as often as it can."""
    write = "import sys; from pathlib import Path; from cta.io.files import write_whole\n"
    write += "for number in range(200): write_whole(Path(sys.argv[1]) / 'clock.json', str(number))"
    with subprocess.Popen([sys.executable, "-c", write, str(tmp_path)], stderr=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None:
            run = RunDir(tmp_path)
            run.acquire()
            run.release()
        assert writer.returncode == 0, writer.stderr and writer.stderr.read()[-300:]
    assert (tmp_path / "clock.json").read_text() == "199"


def test_a_number_used_again_by_another_process_keeps_nothing(tmp_path):
    """The file names this very process, which is alive but does not hold the lock."""
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "boot": run_dir_module._boot(), "started": "1"}
    (tmp_path / "lock").write_text(json.dumps(owner))
    said = []
    RunLock(tmp_path, say=said.append).release()
    assert "which is gone" in said[0]


def test_where_the_file_system_has_no_locks_the_process_itself_is_looked_at(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    first = RunLock(tmp_path)
    with pytest.raises(CtaError, match=f"in use by process {os.getpid()}"):
        RunLock(tmp_path)
    owner = json.loads((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(json.dumps({**owner, "started": "1"}))
    RunLock(tmp_path).release()
    first.release()


@pytest.mark.parametrize("alive", [True, False])
def test_an_owner_on_another_machine_is_watched(tmp_path, monkeypatch, alive):
    monkeypatch.setattr(run_dir_module, "WATCH_SECONDS", 0.6)
    path = tmp_path / "lock"
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere", "boot": "other", "started": "5"}))
    if not alive:
        RunLock(tmp_path).release()
        return
    beating = "import os, sys, time\nwhile True: os.utime(sys.argv[1]); time.sleep(0.05)"
    with subprocess.Popen([sys.executable, "-c", beating, str(path)]) as owner:
        time.sleep(0.5)
        try:
            with pytest.raises(CtaError, match="in use by process 1 on elsewhere"):
                RunLock(tmp_path)
        finally:
            owner.kill()
