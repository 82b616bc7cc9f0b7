"""Several independently initialised copies of one network."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray


class Ensemble(eqx.Module):
    """Members fed the same inputs; outputs stacked on a new leading axis.

    Members are separate modules, not one batched module: XLA's batched products are slow on a CPU, and on an
    accelerator the compiler schedules the separate ones side by side.
    """

    members: tuple[Any, ...]

    def __init__(self, key: PRNGKeyArray, size: int, make: Callable[[PRNGKeyArray], Any]):
        self.members = tuple(make(k) for k in jax.random.split(key, size))

    def __call__(self, *inputs: Array) -> Array:
        """Outputs of shape (members, …)."""
        return jnp.stack([member(*inputs) for member in self.members])
