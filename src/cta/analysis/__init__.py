"""What an agent learned: analogy maps with numbers beside them, and the paper's ablations."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import UseAppendAction

from cta.io.files import FigureFormat
from cta.validation import Bounds, Count, Natural


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """What to map; `None` leaves the choice to the run and its world."""

    pairs: Count = 20_000
    """State–goal pairs."""
    steps_apart: tuple[int, int] | None = None
    """Least and most steps from a state to its goal (default: 5 30, on the embedded worlds 3 10)."""
    query: Annotated[tuple[str, ...], UseAppendAction] = ()
    """What to show the nearest analogies of: a task's name, STATE:GOAL rows, or `ooc`; may be repeated (default: one
    random pair of each task)."""
    seed: int | None = None
    """Seed whose analogies are mapped (default: the run's first); purity is measured for all."""
    step: int | None = None
    """Checkpoint (default: the newest)."""
    data: str | None = None
    """Dataset name or file to take pairs from (default: the run's)."""
    split: Literal["validation", "train"] = "validation"
    """Part of the data."""
    frames: Annotated[int, Bounds("be 0 to 300 points", lambda x: 0 <= x <= 300)] = 252
    """Points that get pictures of state and goal, at most 300; the default is enough for twelve queries with their ten
    nearest by both metrics."""
    format: FigureFormat = "png"
    """Format of the figures."""
    perplexity: Annotated[float, Bounds("be at least 1", lambda x: x >= 1)] = 30.0
    """Of t-SNE."""
    iterations: Count = 500
    """Of t-SNE."""
    draw_seed: Natural = 0
    """Seed of the pairs, the map and the random queries."""
