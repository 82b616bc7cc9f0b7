"""What needs no training: trained weights, played in another way.

    python -m cta_beyond.replay RUN --results beyond proposals=1      one proposal, by the weights of best of 32
    python -m cta_beyond.replay RUN --results beyond --together       the mean action of all other seeds' policies
    python -m cta_beyond.replay RUN --results beyond --halfway 20000  towards recorded states on the way (halfway.py)
    python -m cta_beyond.replay RUN --results beyond --ways 20000     by short hops between them (ways.py)

The second is the candidate `ensemble over seeds`:

    a(s,g) = 1/(n−1)·Σ_{i≠j} μ_ℓⁱ(μ_hⁱ(ζⁱ(s,g), s), s)   for each seed j left out
    Var a = σ²·(ρ + (1−ρ)/(n−1)),  ρ the correlation of two seeds' errors

Prediction: on CTA's checkpoints of lights-4x5 at least 5 points of mean success above the seeds alone. Refuted if the
gain is below 2 points: then seeds err alike (ρ near 1), and no regularisation by averaging will help. The n ensembles
share seeds, so their interval is too narrow.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cta.agents.base import Acted, Agent, Key, Networks, Spec
from cta.config import settings_key, with_settings
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.candidates import candidates
from cta.experiment.score_files import How, Players, score_into
from cta.experiment.weights import Candidate
from cta.goals import Rows, RowTable
from cta.scores.store import Scores
from cta_beyond.halfway import NEAR, SHORTLIST, Halfway
from cta_beyond.ways import Ways


@dataclass(frozen=True)
class Together(Agent):
    """Policies of one agent that act as one; networks by seed."""

    one: Agent

    def init(self, key: Key, spec: Spec) -> Networks:
        raise NotImplementedError("it is not trained")

    def draw(self, key: Key, table: RowTable) -> dict[str, Rows]:
        raise NotImplementedError("it is not trained")

    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
        """The mean of their actions."""
        memory, keys = memory or dict.fromkeys(networks), jax.random.split(key, len(networks))
        acted = {
            seed: self.one.act(mine, observations, goals, k, temperature, memory[seed])
            for (seed, mine), k in zip(networks.items(), keys, strict=True)
        }
        kept = {seed: kept for seed, (_, kept) in acted.items()}
        return jnp.mean(jnp.stack([a for a, _ in acted.values()]), axis=0), kept


ACTING = ("proposals", "flow_steps", "high_hold")
"""Settings that only acting reads: with others the weights would be those of another agent."""


def changed(item: Candidate, settings: dict[str, Any]) -> Candidate:
    """The same weights with other settings, which its scores say."""
    if unknown := sorted(set(settings) - {*ACTING}):
        raise CtaError(f"{unknown[0]}: training reads it; there are {', '.join(ACTING)}")
    config = with_settings(item.agent.config, settings, item.key.agent)
    config.check()
    words = filter(None, [item.key.settings, settings_key(config, item.agent.config)])
    return replace(item, key=item.key._replace(settings=";".join(words)), agent=replace(item.agent, config=config))


def together(items: list[Candidate]) -> Iterator[Candidate]:
    """For every seed of a step the others as one policy."""
    for left_out in items:
        others = [item for item in items if item.step == left_out.step and item.seed != left_out.seed]
        if not others:
            raise CtaError(f"{left_out.label}: there is no other seed to act together with")
        words = ";".join(filter(None, [left_out.key.settings, f"together={len(others)}"]))
        yield replace(
            left_out,
            key=left_out.key._replace(settings=words),
            agent=Together(left_out.agent.config, left_out.agent),
            load=lambda others=others: {str(item.seed): item.load() for item in others},
        )


SEARCHES: dict[str, type[Halfway]] = {"halfway": Halfway, "ways": Ways}


def searched(
    items: list[Candidate], run: Run, how: str, count: int, near: float, shortlist: int
) -> Iterator[Candidate]:
    """The same weights, acting towards `count` rows of the training data."""
    _, data, _ = run.open_data()
    chosen = np.random.default_rng(0).choice(len(data.observations), min(count, len(data.observations)), replace=False)
    rows = run.units.see(np.asarray(data.observations[np.sort(chosen)]))
    for item in items:
        agent = SEARCHES[how](item.agent.config, item.agent, near, shortlist=shortlist)
        _ = agent.learner  # complains at once
        changes = [f"near={near:g}"] * (near != NEAR) + [f"shortlist={shortlist}"] * (shortlist != SHORTLIST)
        words = ";".join(filter(None, [item.key.settings, f"{how}={len(rows)}", *changes]))

        def load(item: Candidate = item, agent: Halfway = agent) -> Networks:
            trained = item.load()
            return {"trained": trained, "pool": agent.pool(trained, rows)}

        yield replace(item, key=item.key._replace(settings=words), agent=agent, load=load)


def main(words: list[str] | None = None) -> int:
    said = argparse.ArgumentParser(prog="python -m cta_beyond.replay", description="Score trained weights otherwise.")
    said.add_argument("run", metavar="RUN")
    said.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings that only acting reads")
    said.add_argument("--together", action="store_true", help="the mean action of all other seeds")
    said.add_argument("--halfway", type=int, default=0, metavar="ROWS", help="so many recorded states to go by")
    said.add_argument("--ways", type=int, default=0, metavar="ROWS", help="so many recorded states to hop between")
    said.add_argument("--near", type=float, default=NEAR, help="steps from which on a goal is divided")
    said.add_argument("--shortlist", type=int, default=SHORTLIST, help="rows among which V chooses (0: none)")
    said.add_argument("--results", type=Path, required=True, metavar="DIR")
    said.add_argument("--ask", choices=("tasks", "presses"), default="tasks")
    said.add_argument("--step", default="last", help="last, last3, all, or steps with commas")
    said.add_argument("--episodes", type=int, default=100)
    asked = said.parse_intermixed_args(words)
    try:
        found = [*candidates(Run(asked.run), asked.step)]
        if asked.settings:
            settings = {name: int(value) for name, _, value in (word.partition("=") for word in asked.settings)}
            found = [changed(item, settings) for item in found]
        found = [*together(found)] if asked.together else found
        how = [name for name in SEARCHES if getattr(asked, name)]
        if len(how) > 1:
            raise CtaError("--halfway and --ways are two ways to search: give one")
        if how:
            count = getattr(asked, how[0])
            found = [*searched(found, Run(asked.run), how[0], count, asked.near, asked.shortlist)]
        elif (asked.near, asked.shortlist) != (NEAR, SHORTLIST):
            raise CtaError("--near and --shortlist are for --halfway and --ways")
        with closing(Players(How(episodes=asked.episodes, ask=asked.ask), lambda *_: None)) as players:
            done = [score_into(Scores(asked.results), item, players) for item in found]
    except (CtaError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{sum(done)} scored into {asked.results}, {len(done) - sum(done)} were there already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
