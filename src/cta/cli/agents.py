from dataclasses import dataclass

from cta.cli.options import Markdown
from cta.errors import CtaError


@dataclass(frozen=True)
class Command:
    """List the agents: name, the paper's name, what stands for a goal, network form, terms of the loss, and parameters.

    cta agents --agent my_module:MyAgent
    """

    dataset: str = "scene-play-v0"
    """Count parameters for this dataset's shapes and presets."""
    agent: str | None = None
    """Only this agent (also `module:Class`)."""
    markdown: Markdown = False

    def __call__(self) -> None:
        import jax

        from cta.agents import REGISTRY, Spec, find
        from cta.envs.names import expected_shapes, known_spec
        from cta.experiment.weights import network_shapes
        from cta.io.text_tables import print_table
        from cta.presets import agent_preset

        shapes = expected_shapes(known_spec(self.dataset).env_name)
        if shapes is None:
            raise CtaError(f"{self.dataset}: the shape of its observations is not known")
        rows = [["name", "paper's name", "goal", "networks", "losses", "parameters"]]
        for entry in map(find, [self.agent] if self.agent else REGISTRY):
            config = agent_preset(entry.config, self.dataset)
            agent = entry.build(config)
            count = sum(leaf.size for leaf in jax.tree.leaves(network_shapes(agent, Spec.of(*shapes))))
            actor = getattr(config, "actor_loss", "awr" if hasattr(config, "alpha") else "bc")
            rules = {"actor": actor, "low": "awr", "high": "awr"}
            losses = ", ".join(f"{term} ({rules[term]})" if term in rules else term for term in agent.routes())
            goal, form = getattr(config, "conditioning", "raw"), getattr(config, "networks", "mlp")
            rows.append([entry.name, entry.paper_name, goal, form, losses, f"{count:,}"])
        print_table(rows, left=5, drop=(4, 3), markdown=self.markdown)
