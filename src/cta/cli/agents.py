"""cta agents"""

from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from cta.cli import DONE
from cta.errors import CtaError

DESCRIPTION = """\
List the agents: name, the paper's name, what stands for a goal, network form, and parameters.

  cta agents
  cta agents --dataset puzzle-4x4-play-v0
"""


def main(argv: list[str]) -> int:
    def parse(
        dataset: Annotated[str, arg(help="Count parameters for this dataset's shapes and presets.")] = "scene-play-v0",
    ) -> str:
        return dataset

    dataset = tyro.cli(parse, args=argv, prog="cta agents", description=DESCRIPTION)
    import jax

    from cta.agents import REGISTRY, Spec
    from cta.envs.names import expected_shapes, known_spec
    from cta.presets import agent_preset

    shapes = expected_shapes(known_spec(dataset).env_name)
    if shapes is None or len(shapes[0]) != 1:
        raise CtaError(f"{dataset}: its observations are not vectors of a known length")
    (observation,), actions = shapes
    table = Table(title=f"agents, sizes on {dataset}")
    for column in ("name", "paper's name", "goal", "networks"):
        table.add_column(column)
    table.add_column("parameters", justify="right")
    for name, entry in REGISTRY.items():
        config = agent_preset(entry.config, dataset)
        spec = Spec(observation, actions)
        shapes = jax.eval_shape(lambda key, c=config, e=entry, s=spec: e.build(c).init(key, s), jax.random.key(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        goal, form = getattr(config, "conditioning", "raw"), getattr(config, "networks", "mlp")
        table.add_row(name, entry.paper_name, goal, form, f"{count:,}")
    Console(highlight=False).print(table)
    return DONE
