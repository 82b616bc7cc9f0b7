"""The worker process: several OGBench environments, stepped as told through a pipe. It never imports JAX.

Started as `python -m cta.evaluation.worker FD PARENT ENV OWN LIMIT`, not by `multiprocessing`, so that the caller's
main module is not run again and its imports (JAX among them) do not come along. OWN is `unit` or `own` if ENV is
`module:factory`, which then gets actions in [-1,1] or in its own units, else empty.

Requests and replies are pickled tuples:
    ("describe",)                                  → (task names, episode limit, action size)
    ("round", [slot, …], {slot: episode}, actions) → (observations, {slot: goal}, success, done), a row or byte per slot
    ("replay", [(slot, episode, actions), …])      → None; begins each episode and repeats its actions
In a round a slot begins its episode, if it has one, or takes the next row of actions. Every reply is ("ok", payload)
or ("error", text, whether the user can fix it).
"""

import os
import signal
import sys
import threading
import time
import traceback
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from cta.envs.protocol import Episode
from cta.envs.worlds import OgbenchWorld, OwnWorld
from cta.errors import CtaError


class Slots:
    """The environments of one worker, by slot."""

    def __init__(self, env_name: str, limit: int | None, *, own: str = "") -> None:
        self._limit = limit
        self._first = partial(OwnWorld, env_name, unit=own == "unit") if own else partial(OgbenchWorld, env_name)
        self._worlds: dict[int, OgbenchWorld | OwnWorld] = {}

    def world(self, slot: int) -> OgbenchWorld | OwnWorld:
        """Made when it is first asked for, since that takes a while."""
        if slot not in self._worlds:
            world = next(iter(self._worlds.values())).twin() if self._worlds else self._first()
            world.max_episode_steps = self._limit or world.max_episode_steps
            self._worlds[slot] = world
        return self._worlds[slot]

    def describe(self) -> tuple[tuple[str, ...], int, int]:
        world = self.world(0)
        return world.task_names, world.max_episode_steps, world.action_dim

    def round(self, slots: list[int], begun: dict[int, Episode], actions: np.ndarray) -> tuple:
        rows, observations, goals, success, done = iter(actions), [], {}, [], []
        for slot in slots:
            world = self.world(slot)
            reached = finished = False
            if slot in begun:
                observation, goals[slot] = world.reset(begun[slot].begin, begun[slot].seed)
            else:
                observation, reached, finished = world.step(next(rows))
            observations.append(observation)
            success.append(reached)
            done.append(finished)
        return np.stack(observations), goals, bytes(success), bytes(done)

    def replay(self, entries: list[tuple[int, Episode, np.ndarray]]) -> None:
        for slot, episode, actions in entries:
            world = self.world(slot)
            world.reset(episode.begin, episode.seed)
            for action in actions:
                world.step(action)


def serve(connection: Connection, slots: Slots) -> None:
    """Answer requests until the other end is closed."""
    while True:
        try:
            kind, *arguments = connection.recv()
        except EOFError:
            return
        reply: tuple[Any, ...]
        try:
            reply = ("ok", getattr(slots, kind)(*arguments))
        except CtaError as error:
            reply = ("error", str(error), True)
        except Exception as error:
            reply = ("error", f"{type(error).__name__}: {error}", False)
        connection.send(reply)


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a long step."""
    while os.getppid() == parent:
        time.sleep(1.0)
    _end_group()


def _end_group() -> None:
    """End this process and all that its environments started; it leads a group of its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    descriptor, parent, env_name, own, limit = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle; it closes the pipe
    threading.Thread(target=_leave_with_parent, args=(int(parent),), daemon=True).start()
    try:
        serve(Connection(int(descriptor)), Slots(env_name, int(limit) or None, own=own))
    except BaseException:  # nobody takes the answer any more, or it cannot be sent
        traceback.print_exc()
    finally:
        _end_group()


if __name__ == "__main__":
    main()
