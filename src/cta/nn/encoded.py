"""A network with encoders of its own for the images among its inputs."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from cta.nn.impala import Impala


class Encoded(eqx.Module):
    """`network(…)` with every image replaced by its encoding.

    Late fusion: an encoder for each image input (None for inputs that are vectors). Early fusion: one encoder of the
    first two inputs, laid over each other as channels. The encoders belong to the whole network: the members of an
    ensemble read the same features.
    """

    encoders: tuple[Impala | None, ...]
    network: Any
    early: bool = eqx.field(static=True)

    def __call__(self, *inputs: Array) -> Array:
        if self.early:
            inputs = (jnp.concatenate(inputs[:2], axis=-1), *inputs[2:])
        pairs = zip(self.encoders, inputs, strict=True)
        return self.network(*(x if encoder is None else encoder(x) for encoder, x in pairs))
