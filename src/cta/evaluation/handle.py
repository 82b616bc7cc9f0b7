"""Worker processes as their parent sees them: as a vector world, and what happens when one fails.

What an environment does is a function of (task, seed, actions). So the parent keeps the actions of every running
episode, and a worker that died, hung or raised is replaced by a fresh one which replays them: nobody who steps the
world notices, and the results are the same to the bit.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

import numpy as np

from cta.envs.protocol import Episode, Step
from cta.errors import CtaError
from cta.plugins import PYTHON

START_SECONDS = 60.0  # granted to a new process and for each environment it makes, beside the time for an answer
STEP_SECONDS = 0.1  # time granted for each step of a replay
LOW_PRIORITY = 5  # of a worker that gives way to training: a third of the share of a process that does not


class _Failure(Exception):
    """A worker did not answer; the text says why."""


class Worker:
    """One worker process with the log that can rebuild its environments.

    Requests are answered in order. `submit` may be called again before `result`, which is how two groups of slots keep
    the process busy. `retries` counts the fresh starts so far; more than `allowed` within one evaluation are an error.
    `limit` shortens episodes, `own` says that the name is `module:factory`, `give_way` lowers the priority. The process
    leads a group of its own, and whatever its environments start ends with it.
    """

    def __init__(
        self,
        env_name: str,
        *,
        allowed: int,
        limit: int | None = None,
        timeout: float = 60.0,
        give_way: bool = False,
        own: str = "",
    ) -> None:
        self._env_name = env_name
        self._arguments = [env_name, own, str(limit or 0)]
        self._give_way = give_way
        self._timeout = timeout
        self._allowed = allowed
        self.retries = 0
        self.last_failure = ""
        self._failures = 0
        self._log: dict[int, tuple[Episode, list[np.ndarray]]] = {}
        self._outstanding: deque[tuple[Any, ...]] = deque()
        self._slots: set[int] = set()
        self._closed = False
        self._starting = threading.Lock()
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> None:
        self._slots.clear()
        self._grace = START_SECONDS
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._connection, theirs = Pipe()
        # Kept, because `Connection.poll` makes a new one every time, which takes longer than reading the answer.
        self._answers = select.poll()
        self._answers.register(self._connection.fileno(), select.POLLIN)
        descriptor = theirs.fileno()
        command = [*PYTHON, "-m", "cta.evaluation.worker", str(descriptor), str(os.getpid()), *self._arguments]
        # One thread each: the workers together are what fills the cores.
        settings = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._messages, "stderr": self._messages}
        self._process = subprocess.Popen(
            command, pass_fds=[descriptor], env=os.environ | settings, **streams, start_new_session=True
        )
        if self._give_way:
            with suppress(OSError):  # it may be gone already
                lowest = max(LOW_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0))
                os.setpriority(os.PRIO_PROCESS, self._process.pid, lowest)
        theirs.close()

    def submit(self, *request: Any) -> None:
        """Send a request; its answer comes from the matching `result`."""
        self._outstanding.append(request)
        with suppress(OSError):  # a dead worker: `result` finds out and says why
            self._connection.send(request)

    def result(self) -> Any:
        """The answer to the oldest request, after as many fresh starts as it takes and are allowed."""
        while True:
            try:
                answer = self._answer(self._patience(self._outstanding[0]))
                break
            except _Failure as failure:
                self._recover(str(failure))
        request = self._outstanding.popleft()
        if request[0] == "round":
            slots, begun, actions = request[1:]
            self._remember(slots, begun, actions, answer[-1])
        return answer

    def _patience(self, request: tuple[Any, ...]) -> float:
        """Seconds to wait for the answer to a request: longer where it starts the process or makes environments."""
        kind, *content = request
        episodes = content[0] if kind == "replay" else []
        slots = content[0] if kind == "round" else [slot for slot, *_ in episodes] or [0]
        steps = sum(len(actions) for _, _, actions in episodes)
        new = len(self._slots.union(slots)) - len(self._slots)
        return self._timeout + self._grace + START_SECONDS * new + STEP_SECONDS * steps

    def _answer(self, timeout: float) -> Any:
        """Wait for one reply. The pipe also becomes readable when the process is gone."""
        try:
            if not self._answers.poll(1e3 * timeout):
                raise _Failure(f"no answer for {timeout:.0f} s")
            kind, *content = self._connection.recv()
        except (EOFError, OSError):
            raise _Failure(self._cause_of_death()) from None
        self._grace = 0.0
        if kind == "ok":
            return content[0]
        text, fixable = content
        if fixable:
            raise CtaError(text)
        raise _Failure(text)

    def _remember(self, slots: list[int], begun: dict[int, Episode], actions: np.ndarray, done: bytes) -> None:
        self._slots.update(begun)
        taken = iter(actions)
        for slot, finished in zip(slots, done, strict=True):
            if slot in begun:
                self._log[slot] = (begun[slot], [])
                continue
            action = next(taken)
            if finished:
                del self._log[slot]
            else:
                self._log[slot][1].append(action)

    def _recover(self, cause: str) -> None:
        """A fresh process in the state of the last answered request, with the open requests sent again."""
        self.last_failure = cause
        self._failures += 1
        if self._failures > self._allowed:
            raise CtaError(f"{self._env_name}: the simulator failed {self._failures} times in one evaluation: {cause}")
        with self._starting:
            if self._closed:
                raise CtaError(f"{self._env_name}: the evaluation was stopped")
            self._end()
            self._start()
        self.retries += 1
        replay = [(slot, episode, np.array(actions)) for slot, (episode, actions) in self._log.items()]
        try:
            patience = self._patience(("replay", replay))
            self._send_patiently(("replay", replay), patience)
            self._answer(patience)
            self._slots.update(self._log)
            for request in self._outstanding:
                self._connection.send(request)
        except (OSError, _Failure) as failure:
            self._recover(str(failure))

    def _send_patiently(self, request: tuple[Any, ...], patience: float) -> None:
        """Send what may be larger than the pipe. A process that does not read it is ended, which ends the waiting."""
        timer = threading.Timer(patience, self._process.kill)
        timer.start()
        try:
            self._connection.send(request)
        finally:
            timer.cancel()

    def _cause_of_death(self) -> str:
        """What is known about a process that closed its pipe: its last words, or the signal that ended it."""
        if self._closed:
            return "the evaluation was stopped"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.poll()
        if code is not None and code < 0:
            return f"a worker process was ended by {signal.Signals(-code).name}"
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        return f"a worker process ended with exit code {code}: {last}"

    def forgive(self) -> None:
        """A new evaluation begins: count failures from zero, and forget episodes that nobody will continue."""
        self._failures = 0
        self._log.clear()

    def close(self) -> None:
        """End the process for good. From another thread it makes a `result` that is under way raise CtaError."""
        with self._starting:
            self._closed = True
            self._end()

    def _end(self) -> None:
        # Killed first: the end of the process wakes up whoever waits at the pipe.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._messages.close()


class WorkersWorld:
    """A group of slots as a `VectorWorld`: slot k lives in worker k mod workers, so each worker serves each group."""

    def __init__(
        self, workers: Sequence[Worker], about: tuple[tuple[str, ...], int, int], *, group: int, groups: int, slots: int
    ) -> None:
        self.slots = slots
        self._workers, size = workers, len(workers)
        self._place = [(k % size, k // size * groups + group) for k in range(slots)]
        self.task_names, self.max_episode_steps, self.action_dim = about
        self._active = np.zeros(slots, bool)
        self._asked: dict[int, list[int]] = {}
        self._observations: np.ndarray | None = None
        self._goals: np.ndarray | None = None

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        """Begin one round: slots in `start` begin that episode, the others step if their episode is still running."""
        self._active[list(start)] = True
        self._asked = {}
        for k in np.flatnonzero(self._active).tolist():
            self._asked.setdefault(self._place[k][0], []).append(k)
        actions = np.asarray(actions, np.float32)
        for worker, asked in self._asked.items():
            begun = {self._place[k][1]: start[k] for k in asked if k in start}
            steps = actions[[k for k in asked if k not in start]]
            self._workers[worker].submit("round", [self._place[k][1] for k in asked], begun, steps)

    def receive(self) -> Step:
        """Finish the round begun by `send`. A slot whose episode is over keeps its last observation, and stays done."""
        success, done = np.zeros(self.slots, bool), ~self._active
        for worker, slots in self._asked.items():
            observations, goals, reached, finished = self._workers[worker].result()
            if self._observations is None or self._goals is None:
                shape = (self.slots, *observations.shape[1:])
                self._observations, self._goals = (np.zeros(shape, observations.dtype) for _ in range(2))
            self._observations[slots] = observations
            for k in slots if goals else ():
                if self._place[k][1] in goals:
                    self._goals[k] = goals[self._place[k][1]]
            success[slots], done[slots] = np.frombuffer(reached, bool), np.frombuffer(finished, bool)
        self._asked = {}
        self._active &= ~done
        if self._observations is None or self._goals is None:
            raise RuntimeError("receive before the first episode began")
        return Step(self._observations.copy(), self._goals.copy(), success, done)
