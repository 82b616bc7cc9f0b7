"""A cell: one agent with one set of settings on one kind of data, and what is wanted of it."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cta.config import AgentConfig, settings_key, to_dict
from cta.data.locations import is_path, resolve
from cta.evaluation.presses import press_names
from cta.experiment import run_config
from cta.io.files import safe_name
from cta.scores.protocol import EPISODES, TASKS, CellScores
from cta.scores.schema import TRAINED_ON, WHOLE, CellKey, Score
from cta.validation import Count, Natural


@dataclass(frozen=True)
class DataSize:
    """Which data to generate; sizes not given are the published ones."""

    seed: Natural = 0
    episodes: Count | None = None
    episode_steps: Count | None = None

    @property
    def full(self) -> bool:
        return self == DataSize()


@dataclass(frozen=True)
class Cut:
    """Pairs other than the world's own: the flags of `cta ooc cut` that name them, and what they come to.

    `only` is the number of the one pair that is cut out, where each has data of its own.
    """

    flags: tuple[str, ...] = ()
    pairs: str = ""
    numbers: tuple[int, ...] = ()
    only: int | None = None


@dataclass(frozen=True)
class Cell:
    """`seeds` × `steps` of one agent on one dataset, scored at `points` with `episodes` episodes per task."""

    dataset: str
    """Its name, or an npz file."""
    agent: str
    seeds: tuple[int, ...]
    steps: int
    points: tuple[int, ...]
    episodes: int = EPISODES
    curve_points: tuple[int, ...] = ()
    """Further steps to score when nothing more urgent is waiting, for learning curves."""
    curve_episodes: int = 10
    settings: tuple[tuple[str, Any], ...] = ()
    """Changes to the agent's settings: (dotted name, value)."""
    temperature: float = 0.0
    """Of the policy that is scored."""
    data: DataSize = DataSize()
    condition: str = WHOLE
    ask: str = "tasks"
    """Scored on the world's five tasks, on its held-out pairs, or on goals by their number of presses."""
    cut: Cut = Cut()

    @cached_property
    def config(self) -> AgentConfig:
        changed = run_config(self.agent, self.dataset, agent_settings=dict(self.settings)).agent
        changed.check()
        return changed

    @cached_property
    def dataset_name(self) -> str:
        return resolve(self.dataset).name

    @cached_property
    def run_key(self) -> CellKey:
        """The key that `cta evaluate` gives to the scores of its runs."""
        changes = settings_key(self.config, run_config(self.agent, self.dataset).agent)
        return CellKey(self.dataset_name, self.agent, changes, self.condition)

    @cached_property
    def manner(self) -> str:
        """What is unusual about its scores, beside the agent's settings: the temperature, pairs of one's own."""
        pairs = _digest([self.cut.pairs, self.cut.only]) if self.cut != Cut() else ""
        changes = [f"eval_temperature={self.temperature:g}" if self.temperature else "", pairs and f"pairs={pairs}"]
        return ";".join(filter(None, changes))

    @cached_property
    def key(self) -> CellKey:
        """Under which its scores are published."""
        return self.run_key._replace(settings=";".join(filter(None, (self.run_key.settings, self.manner))))

    @cached_property
    def data_identity(self) -> list[Any]:
        """What decides the rows it is trained on."""
        if is_path(self.dataset):
            from cta.envs.datasets import open_dataset

            origin: Any = open_dataset(self.dataset)[1].fingerprint()
        else:
            origin = [self.data.seed, self.data.episodes, self.data.episode_steps]
        pairs = "" if self.condition == WHOLE else self.cut.pairs
        return [self.dataset_name, origin, self.condition, pairs]

    @cached_property
    def data_name(self) -> str:
        """Of the folder of data that are made for it."""
        words = [self.dataset_name, *([] if self.condition == WHOLE else [self.condition])]
        return f"{safe_name('.'.join(words))}-{_digest(self.data_identity)}"

    @cached_property
    def digest(self) -> str:
        """Of all that decides its weights, but for seeds and steps, of which more may be asked later."""
        only = None if self.condition == WHOLE else self.cut.only
        return _digest([self.agent, to_dict(self.config), self.data_identity, only])

    @cached_property
    def folder(self) -> str:
        """The name of its folder: another plan with the same content finds it, a changed one does not."""
        trained = filter(None, [self.dataset_name, self.agent, self.condition, self.run_key.settings])
        return f"{safe_name('.'.join(trained))[:100]}-{self.digest}"

    @cached_property
    def name(self) -> str:
        changes = [f"{name} {value}" for name, value in self.settings]
        changes += [f"temperature {self.temperature:g}"] if self.temperature else []
        agent = self.agent + (f" ({', '.join(changes)})" if changes else "")
        only = "" if self.cut.only is None else f" (pair {self.cut.only})"
        asked = "" if self.ask == ("tasks" if self.condition == WHOLE else "pairs") else f", asked for {self.ask}"
        return f"{agent} on {self.dataset_name}{TRAINED_ON[self.condition]}{only}{asked}"

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks or pairs of a score."""
        if self.ask == "tasks":
            return TASKS
        if self.ask == "presses":
            return press_names(self.dataset_name)
        return tuple(f"pair{number}" for number in self.cut.numbers or range(1, 1 + own_pairs(self.dataset_name)))

    def wants(self, row: Score) -> bool:
        """Whether it asked for this score; a folder may have others of the same key."""
        return row.seed in self.seeds and row.step in self.all_points and row.task in self.tasks

    def scored(self, known: CellScores) -> set[tuple[int, int]]:
        """(seed, step) that it asked for and that are known with enough episodes."""
        found = set[tuple[int, int]]()
        for points, episodes in ((self.points, self.episodes), (self.curve_points, self.curve_episodes)):
            done = known.scored(episodes=episodes, tasks=self.tasks)
            found |= {(seed, step) for seed, step in done if seed in self.seeds and step in points}
        return found

    def episodes_at(self, step: int) -> int:
        return self.episodes if step in self.points else self.curve_episodes

    @property
    def all_points(self) -> tuple[int, ...]:
        return tuple(sorted({*self.points, *self.curve_points}))


def own_pairs(dataset: str) -> int:
    """How many pairs come with a dataset's world; an error where there are none."""
    from cta.ooc.components import find_layout
    from cta.ooc.pairs import built_in_pairs

    return len(built_in_pairs(find_layout(dataset)))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
