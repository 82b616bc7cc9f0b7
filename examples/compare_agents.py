"""Two agents on an embedded world, their scores, and one page about both.

python examples/compare_agents.py
"""

import cta
from cta.report import build

AGENTS, SEEDS, STEPS = ("cta", "hiql"), 2, 3_000

runs = [cta.train("lights-3x3-play-v0", agent=agent, seeds=SEEDS, steps=STEPS) for agent in AGENTS]
for run in runs:
    scores = {seed: f"{score:.0%}" for seed, score in run.scores().items()}
    print(f"{run.config.agent_name}: success by seed {scores}")
page = build([run.path for run in runs], out="page").path
print(f"page: {page}")
