"""Rolling policies out: the five-task protocol, worker processes, scores and videos. It loads no JAX by itself."""

from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import EpisodeResult, episode_seed, record_videos, scores

__all__ = ["EpisodeResult", "Evaluator", "episode_seed", "record_videos", "scores"]
