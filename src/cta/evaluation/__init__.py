"""Rolling policies out: the five-task protocol, worker processes, scores and videos. It loads no JAX by itself."""

from cta.evaluation.evaluator import Evaluator as Evaluator
from cta.evaluation.rollout import EpisodeResult as EpisodeResult
from cta.evaluation.rollout import episode_seed as episode_seed
from cta.evaluation.rollout import scores as scores
from cta.evaluation.videos import record_videos as record_videos
