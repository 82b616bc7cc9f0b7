"""Measurements of speed and memory: what `cta bench` runs, and the records it writes."""

from dataclasses import dataclass
from typing import Any, Literal

from cta.validation import Count, Natural, Positive

Entry = dict[str, Any]
"""One measurement of a record: `what`, the facts of its case, and numbers."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What training is measured on, for how long, and how its steps are computed."""

    dataset: str | None = None
    """Measure on this dataset, with the paper's settings for it (default: random rows)."""
    dataset_dir: str | None = None
    """Folder of datasets."""
    rows: Count = 1_000_000
    """Random rows, in episodes of 1,001."""
    observation_dim: Count = 83
    """Columns of a random observation."""
    image_size: Natural = 0
    """Random images of so many pixels a side, three channels, in place of random vectors (0: vectors)."""
    action_dim: Count = 5
    """Columns of a random action."""
    seconds: Positive = 20.0
    """How long each rate is measured."""
    kernels: Literal["auto", "plain", "fused"] = "auto"
    """How the step is computed, as in `cta train`."""
