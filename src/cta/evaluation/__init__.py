"""Rolling policies out: the five-task protocol, worker processes, scores and videos.

Public names are loaded on first use, because worker processes import this package and must not load
more than they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cta.evaluation.episodes import EpisodeResult as EpisodeResult
    from cta.evaluation.episodes import episode_seed as episode_seed
    from cta.evaluation.episodes import overall_success as overall_success
    from cta.evaluation.episodes import scores as scores
    from cta.evaluation.episodes import seed_scores as seed_scores
    from cta.evaluation.evaluator import Evaluator as Evaluator
    from cta.evaluation.rollout import Policy as Policy
    from cta.evaluation.videos import record_videos as record_videos

_HOME = {
    "EpisodeResult": "episodes",
    "Evaluator": "evaluator",
    "Policy": "rollout",
    "episode_seed": "episodes",
    "overall_success": "episodes",
    "record_videos": "videos",
    "scores": "episodes",
    "seed_scores": "episodes",
}
__all__ = [
    "EpisodeResult",
    "Evaluator",
    "Policy",
    "episode_seed",
    "overall_success",
    "record_videos",
    "scores",
    "seed_scores",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"cta.evaluation.{_HOME[name]}"), name)
    raise AttributeError(f"module 'cta.evaluation' has no attribute '{name}'")
