"""cta agents"""

from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from cta.cli import DONE
from cta.errors import CtaError

if TYPE_CHECKING:
    from cta.agents import Entry, Networks, Spec

DESCRIPTION = """\
List the agents: name, the paper's name, what stands for a goal, network form, terms of the loss, and parameters.

  cta agents
  cta agents --dataset puzzle-4x4-play-v0
  cta agents --agent my_module:MyAgent
"""


def main(argv: list[str]) -> int:
    def parse(
        dataset: Annotated[str, arg(help="Count parameters for this dataset's shapes and presets.")] = "scene-play-v0",
        agent: Annotated[str | None, arg(help="Only this agent (also `module:Class`).")] = None,
    ) -> tuple[str, str | None]:
        return dataset, agent

    dataset, only = tyro.cli(parse, args=argv, prog="cta agents", description=DESCRIPTION)
    from cta.agents import REGISTRY, Spec, find
    from cta.envs.names import expected_shapes, known_spec

    shapes = expected_shapes(known_spec(dataset).env_name)
    if shapes is None:
        raise CtaError(f"{dataset}: the shape of its observations is not known")
    table = Table(title=f"agents, sizes on {dataset}")
    for column in ("name", "paper's name", "goal", "networks", "losses"):
        table.add_column(column)
    table.add_column("parameters", justify="right")
    for name in [only] if only else REGISTRY:
        table.add_row(*describe(find(name), dataset, Spec.of(*shapes)))
    Console(highlight=False).print(table)
    return DONE


def describe(entry: "Entry", dataset: str, spec: "Spec") -> list[str]:
    """A row of the table; nothing is computed, only shapes."""
    import jax
    import jax.numpy as jnp

    from cta.goals import RowTable, gather
    from cta.presets import agent_preset

    config = agent_preset(entry.config, dataset)
    agent = entry.build(config)
    networks = jax.eval_shape(lambda key: agent.init(key, spec), jax.random.key(0))
    targets = {name: networks[name] for name in agent.targets()}
    terms: list[str] = []

    def trace(networks: "Networks", targets: "Networks") -> None:
        rows = agent.draw(jax.random.key(0), RowTable(jnp.zeros(1, jnp.int32), jnp.zeros(2, jnp.int32)))
        batch = gather(jnp.zeros((2, *spec.observation_shape)), jnp.zeros((2, spec.action_dim)), rows)
        try:
            terms.extend(agent.terms(networks, targets, batch, jax.random.key(0)))
        except NotImplementedError:
            terms.append("one")

    jax.eval_shape(trace, networks, targets)
    actor = getattr(config, "actor_loss", "awr" if hasattr(config, "alpha") else "bc")
    rules = {"actor": actor, "low": "awr", "high": "awr"}
    losses = ", ".join(f"{term} ({rules[term]})" if term in rules else term for term in terms)
    goal, form = getattr(config, "conditioning", "raw"), getattr(config, "networks", "mlp")
    count = sum(leaf.size for leaf in jax.tree.leaves(networks))
    return [entry.name, entry.paper_name, goal, form, losses, f"{count:,}"]
