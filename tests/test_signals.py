"""A signal at any moment of a command: exit code 3, within two seconds, and nothing but one line said.

CTA_SIGNALS=FILE sends four times as many and writes a table of them.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from cta.cli import run

CTA = [sys.executable, "-m", "cta"]
REPORT = os.environ.get("CTA_SIGNALS")
MOMENTS = (0.2, 0.5, 1.0, 1.4, 2.0, 2.7, 3.5, 5.0) if REPORT else (0.2, 1.0, 2.0, 3.5)
"""Seconds after the command has begun: loading modules, opening files, compiling, computing.

Of four moments a command gets an early and a late one, one for each signal, and the commands share them out.
"""


def wait_for_begin(process):
    """Until Python is up and the command catches signals, which on a busy machine takes as long as it takes."""
    caught = 0
    while not caught >> (signal.SIGTERM - 1) & 1 and process.poll() is None:
        time.sleep(0.02)
        with open(f"/proc/{process.pid}/status") as file:
            caught = int(next(line for line in file if line.startswith("SigCgt")).split()[1], 16)


@pytest.fixture(scope="module")
def desk_run(tmp_path_factory):
    """A tiny CTA on the desk, far too young to play well."""
    path = tmp_path_factory.mktemp("signals") / "run"
    words = ["--steps", "100", "--eval-interval", "0", "--agent.batch-size", "16", "--run-dir", str(path)]
    assert run(["train", "--dataset", "desk-play-v0", "--agent", "cta", *words]) == 0
    return path


COMMANDS = {
    "evaluate": ["evaluate", "RUN", "--episodes", "2000"],
    "ooc evaluate": ["ooc", "evaluate", "RUN", "--episodes", "2000"],
    "theory": ["theory"],
    "analogies": ["analogies", "RUN", "--out", "OUT"],
    "bench": ["bench", "train", "--seconds", "60"],
}


@pytest.fixture(autouse=True)
def heard():
    """A suite in the background may have been started with SIGINT ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_ends_a_command_with_3(desk_run, tmp_path, name, number):
    moments = MOMENTS[number == signal.SIGTERM :: 2]
    if not REPORT:
        turn = [*COMMANDS].index(name) + 2 * (number == signal.SIGTERM)
        moments = MOMENTS[turn % 4 :][:1]
    for moment in moments:
        words = [{"RUN": str(desk_run), "OUT": str(tmp_path / "out")}.get(word, word) for word in COMMANDS[name]]
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}  # so that it does compile
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen([*CTA, *words], cwd=tmp_path, env=environment, **pipes)
        try:
            wait_for_begin(process)
            time.sleep(moment)
            began = time.monotonic()
            process.send_signal(number)
            said, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        took = time.monotonic() - began
        if REPORT:
            with open(REPORT, "a") as file:
                if not file.tell():
                    file.write("command,signal,sent after s,exit code,ended after s\n")
                file.write(f"cta {name},{signal.Signals(number).name},{moment},{process.returncode},{took:.2f}\n")
        assert process.returncode == 3, f"{name} after {moment} s: exit {process.returncode}: {said[-500:]}"
        assert took < 2.0 * float(os.environ.get("CTA_TEST_PATIENCE", "1"))
        assert "Traceback" not in said and said.strip().endswith("interrupted")


def test_a_signal_that_comes_while_garbage_is_collected_is_not_lost():
    """Python drops exceptions in callbacks of the collector; JAX has one."""
    code = """
import gc, os, signal, sys, time
from cta import cli

def collecting(*_):
    gc.callbacks.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)

def command(name, words):
    gc.callbacks.append(collecting)
    gc.collect()
    time.sleep(20)
    return 0

cli.carry_out = command
sys.argv = ["cta", "doctor"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15)
    assert (done.returncode, done.stderr) == (3, "cta doctor: interrupted\n")
