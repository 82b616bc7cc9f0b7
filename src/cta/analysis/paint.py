"""Pictures of states: drawn for the embedded worlds, rendered for OGBench's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cta.data import TrajectoryDataset
from cta.data.locations import environment_name
from cta.envs.desk import find_world
from cta.envs.desk_draw import canvas, draw
from cta.envs.names import KNOWN, family
from cta.errors import CtaError

DRAWN_PIXELS = 160
RENDERED_PIXELS = 200
IMAGE_TIMES = 2
"""How much larger than life an image observation is shown."""


@contextmanager
def open_painter(dataset_name: str, data: TrajectoryDataset) -> Iterator[tuple[Callable[[int], np.ndarray], str]]:
    """What makes an image (side, side, 3) uint8 of a row's state, and how: drawn, rendered, or observed as an image.

    It holds a simulator while it is open, if it needs one. CtaError: nothing can draw.
    """
    world = find_world(dataset_name)
    if len(data.observation_shape) == 3:
        larger = np.ones((IMAGE_TIMES, IMAGE_TIMES, 1), np.uint8)
        yield lambda row: np.kron(data.observations[row][..., :3], larger), "observed"
        return
    if world is not None:
        yield canvas(lambda ax, row: draw(ax, world, data.observations[row], labels=False), DRAWN_PIXELS), "drawn"
        return
    env = _simulator(dataset_name, data)
    try:
        yield lambda row: _rendered(env, data, row), "rendered"
    finally:
        from cta.envs.ogbench import close_env

        close_env(env)


def _simulator(dataset_name: str, data: TrajectoryDataset) -> Any:
    """The dataset's environment, ready to be put into any of its states."""
    from cta.envs import gl
    from cta.envs.ogbench import make_env, seeded_reset

    if dataset_name not in KNOWN:
        raise CtaError(f"{dataset_name} belongs to no known environment")
    if not {"qpos", "qvel"} <= data.info.keys():
        raise CtaError(f"{data.name} has no qpos and qvel to put the simulator into its states")
    gl.enable_rendering()
    # Targets and success colours belong to an evaluation; a state of the data has neither.
    options = {} if family(dataset_name).endswith("maze") else {"visualize_info": False}
    env = make_env(environment_name(dataset_name), render_size=(RENDERED_PIXELS, RENDERED_PIXELS), **options)
    seeded_reset(env, 0, {"task_id": 1})
    return env


def _rendered(env: Any, data: TrajectoryDataset, row: int) -> np.ndarray:
    state = {key: np.asarray(data.info[key][row]) for key in ("qpos", "qvel", "button_states") if key in data.info}
    env.set_state(**{key: values if key == "button_states" else values.astype(float) for key, values in state.items()})
    return np.asarray(env.render())[..., :3]
