"""Which episodes an evaluation consists of, and playing them with a policy in groups of slots. No JAX in here."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cta.envs.protocol import Episode, Step, VectorWorld
from cta.errors import CtaError

TASKS = (1, 2, 3, 4, 5)
EPISODES = 50

Policy = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(observations (slots, …), goals (slots, …), first (slots,) bool) → actions (slots, A).

`first` marks the slots that are at the first observation of an episode. Slots without an episode are passed along, so
that the number of rows never changes; their actions are ignored."""
Progress = Callable[[int, int], None]
"""Called with (episodes done, episodes in total)."""
Watch = Callable[[dict[int, Episode], Step], None]
"""Called after every step of a group with ({slot: episode it plays}, what its slots look like)."""


@dataclass(frozen=True, order=True)
class EpisodeResult:
    """One evaluation episode: `success` is the flag of its last step, number `steps`; `seed` replays it."""

    task: int
    episode: int
    seed: int
    success: bool
    steps: int


def episode_seed(eval_seed: int, run_seed: int, task: int, episode: int) -> int:
    """The seed of an episode: the same start, goal and settling steps at every checkpoint and for every method."""
    return int(np.random.SeedSequence((eval_seed, run_seed, task, episode)).generate_state(1)[0])


def plan_episodes(
    *, run_seed: int, tasks: Sequence[int] = TASKS, episodes: int = EPISODES, eval_seed: int = 0
) -> list[Episode]:
    """All episodes of an evaluation, sorted by task and number."""
    if not tasks or episodes < 1:
        raise CtaError("an evaluation needs at least one task and one episode")
    return [
        Episode(task, episode_seed(eval_seed, run_seed, task, episode), episode=episode)
        for task in sorted(set(tasks))
        for episode in range(episodes)
    ]


def scores(results: Iterable[EpisodeResult]) -> dict[int, tuple[int, int]]:
    """{task: (episodes, successes)}, in order of task."""
    counts: dict[int, list[bool]] = defaultdict(list)
    for result in results:
        counts[result.task].append(result.success)
    return {task: (len(counts[task]), sum(counts[task])) for task in sorted(counts)}


class NotANumber(CtaError):
    """The policy returned an action that is not a finite number."""


class _Group:
    """A world, its policy and its queue. Which episode a slot gets is decided by rounds, never by the clock."""

    def __init__(
        self, world: VectorWorld, policy: Policy, queue: Sequence[Episode], watch: Watch | None = None
    ) -> None:
        self._world = world
        self._policy = policy
        self._watch = watch
        self._queue = deque(queue)
        self._playing: dict[int, Episode] = {}
        self._steps = np.zeros(world.slots, int)
        self._first = np.zeros(world.slots, bool)
        self.finished: list[EpisodeResult] = []
        self._send(np.zeros((world.slots, world.action_dim), np.float32))

    @property
    def active(self) -> bool:
        return bool(self._playing)

    def _send(self, actions: np.ndarray) -> None:
        """Give the free slots, in their order, the next episodes of the queue, and begin the round."""
        start: dict[int, Episode] = {}
        for slot in range(self._world.slots):
            if slot not in self._playing and self._queue:
                start[slot] = self._playing[slot] = self._queue.popleft()
        self._steps += 1
        self._steps[list(start)] = 0
        self._first[:] = False
        self._first[list(start)] = True
        if self._playing:
            self._world.send(actions, start)

    def advance(self) -> None:
        """Finish the round under way, note which episodes ended, and begin the next round with the policy's actions."""
        step = self._world.receive()
        if self._watch is not None:
            self._watch(self._playing, step)
        for slot in [slot for slot in self._playing if step.done[slot]]:
            one, success, steps = self._playing.pop(slot), bool(step.success[slot]), int(self._steps[slot])
            self.finished.append(EpisodeResult(one.task, one.episode, one.seed, success, steps))
        if self._playing:
            self._send(self._act(step))
        else:
            self._send(np.zeros((self._world.slots, self._world.action_dim), np.float32))

    def _act(self, step: Step) -> np.ndarray:
        actions = np.asarray(self._policy(step.observations, step.goals, self._first.copy()))
        expected = (self._world.slots, self._world.action_dim)
        if actions.shape != expected:
            raise CtaError(f"the policy returned actions of shape {actions.shape}; this world needs {expected}")
        if not np.isfinite(actions[sorted(self._playing)]).all():
            raise NotANumber("the policy returned an action that is not a number: the networks have diverged")
        return actions


def play(
    worlds: Sequence[VectorWorld],
    make_policy: Callable[[int], Policy],
    planned: Sequence[Episode],
    *,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> list[EpisodeResult]:
    """Play the planned episodes and return their results, sorted.

    The groups take turns: while the policy computes for one, the others step. Episode i belongs to group i mod groups.
    """
    groups = [
        _Group(world, make_policy(world.slots), planned[number :: len(worlds)], watch)
        for number, world in enumerate(worlds)
    ]
    done = 0
    while any(group.active for group in groups):
        for group in groups:
            if group.active:
                group.advance()
        finished = sum(len(group.finished) for group in groups)
        if progress is not None and finished != done:
            progress(finished, len(planned))
        done = finished
    return sorted(result for group in groups for result in group.finished)
