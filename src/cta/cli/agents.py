"""cta agents"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cta.cli.options import Markdown
from cta.errors import CtaError

if TYPE_CHECKING:
    from cta.agents import Entry, Spec

COLUMNS = ("name", "paper's name", "goal", "networks", "losses", "parameters")


@dataclass(frozen=True)
class Command:
    """List the agents: name, the paper's name, what stands for a goal, network form, terms of the loss, and parameters.

    cta agents
    cta agents --dataset puzzle-4x4-play-v0
    cta agents --agent my_module:MyAgent
    """

    dataset: str = "scene-play-v0"
    """Count parameters for this dataset's shapes and presets."""
    agent: str | None = None
    """Only this agent (also `module:Class`)."""
    markdown: Markdown = False

    def __call__(self) -> None:
        from cta.agents import REGISTRY, Spec, find
        from cta.envs.names import expected_shapes, known_spec
        from cta.io.text_tables import print_table

        shapes = expected_shapes(known_spec(self.dataset).env_name)
        if shapes is None:
            raise CtaError(f"{self.dataset}: the shape of its observations is not known")
        names = [self.agent] if self.agent else REGISTRY
        rows = [describe(find(name), self.dataset, Spec.of(*shapes)) for name in names]
        print_table([COLUMNS, *rows], left=5, drop=(4, 3), markdown=self.markdown)


def describe(entry: "Entry", dataset: str, spec: "Spec") -> list[str]:
    """A row of the table; nothing is computed, only shapes."""
    import jax

    from cta.presets import agent_preset

    config = agent_preset(entry.config, dataset)
    agent = entry.build(config)
    networks = jax.eval_shape(lambda key: agent.init(key, spec), jax.random.key(0))
    actor = getattr(config, "actor_loss", "awr" if hasattr(config, "alpha") else "bc")
    rules = {"actor": actor, "low": "awr", "high": "awr"}
    losses = ", ".join(f"{term} ({rules[term]})" if term in rules else term for term in agent.routes())
    goal, form = getattr(config, "conditioning", "raw"), getattr(config, "networks", "mlp")
    count = sum(leaf.size for leaf in jax.tree.leaves(networks))
    return [entry.name, entry.paper_name, goal, form, losses, f"{count:,}"]
