"""Which episodes an evaluation consists of, and playing them with a policy in groups of slots. No JAX in here."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np

from cta.envs.protocol import Episode, Step, VectorWorld
from cta.errors import CtaError

TASKS = (1, 2, 3, 4, 5)
EPISODES = 50

Policy = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(observations (slots, …), goals (slots, …), first (slots,) bool) → actions (slots, A).

`first` marks the slots that are at the first observation of an episode. Slots without an episode are passed along, so
that the number of rows never changes; their actions are ignored."""
MakePolicy = Callable[[int], Policy]
"""Gives a policy for so many slots."""
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


def _rounds(
    world: VectorWorld, policy: Policy, queue: Sequence[Episode], watch: Watch | None
) -> Iterator[list[EpisodeResult]]:
    """Play a queue of episodes in the slots of a world. Each round yields what ended, while the world is stepping.

    Which episode a slot gets is decided by rounds, never by the clock.
    """
    waiting, playing, ended = deque(queue), dict[int, Episode](), list[EpisodeResult]()
    steps = np.zeros(world.slots, int)
    actions = np.zeros((world.slots, world.action_dim), np.float32)
    while True:
        start: dict[int, Episode] = {}
        for slot in range(world.slots):
            if slot not in playing and waiting:
                start[slot] = playing[slot] = waiting.popleft()
        steps += 1
        steps[list(start)] = 0
        if playing:
            world.send(actions, start)
        yield ended
        if not playing:
            return
        step, ended = world.receive(), []
        if watch is not None:
            watch(playing, step)
        for slot in [slot for slot in playing if step.done[slot]]:
            one, success = playing.pop(slot), bool(step.success[slot])
            ended.append(EpisodeResult(one.task, one.episode, one.seed, success, int(steps[slot])))
        if playing:
            found = np.asarray(policy(step.observations, step.goals, steps == 0))
            if found.shape != actions.shape:
                raise CtaError(f"the policy returned actions of shape {found.shape}; this world needs {actions.shape}")
            if not np.isfinite(found[sorted(playing)]).all():
                raise NotANumber("the policy returned an action that is not a number: the networks have diverged")
            actions = found


def play(
    worlds: Sequence[VectorWorld],
    make_policy: MakePolicy,
    planned: Sequence[Episode],
    *,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> list[EpisodeResult]:
    """Play the planned episodes and return their results, sorted.

    The groups take turns: while the policy computes for one, the others step. Episode i belongs to group i mod groups.
    """
    results: list[EpisodeResult] = []
    groups = [
        _rounds(world, make_policy(world.slots), planned[number :: len(worlds)], watch)
        for number, world in enumerate(worlds)
    ]
    for ended in zip_longest(*groups, fillvalue=()):
        before = len(results)
        results += chain.from_iterable(ended)
        if progress is not None and len(results) != before:
            progress(len(results), len(planned))
    return sorted(results)
