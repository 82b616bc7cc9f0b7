"""The transduction form: features bilinear in (displacement, anchor)."""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cta.nn.layers import Linear, Mlp

Form = Literal["backbone", "head", "pure"]


class BilinearTrunk(eqx.Module):
    """`h_i = Σ_j f(z)_ij g(x)_ij`, then a backbone MLP and a small-init linear head.

    f (displacement) and g (anchor) end in p·b units read row-major as (p, b). `form="head"` leaves the backbone out;
    `form="pure"` takes h itself as the output, p being the number of outputs (the bilinear map of the theory).
    """

    displacement: Mlp
    anchor: Mlp
    backbone: Mlp | None
    head: Linear | None
    rank: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        displacement: int,
        anchor: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        features: int,
        rank: int,
        backbone: Sequence[int],
        form: Form,
        activate_final: bool,
        layer_norm: bool,
        head_scale: float,
    ):
        keys = jax.random.split(key, 4)
        features = outputs if form == "pure" else features
        sizes = [*hidden, features * rank]

        def module(k: PRNGKeyArray, inputs: int) -> Mlp:
            return Mlp(k, inputs, sizes, layer_norm=layer_norm, activate_final=activate_final)

        self.displacement = module(keys[0], displacement)
        self.anchor = module(keys[1], anchor)
        self.rank = rank
        self.backbone = None
        if form == "backbone":
            self.backbone = Mlp(keys[2], features, backbone, layer_norm=layer_norm, activate_final=True)
            features = backbone[-1]
        self.head = None if form == "pure" else Linear(keys[3], features, outputs, scale=head_scale)

    def __call__(
        self, displacement: Float[Array, "batch z"], *anchor: Float[Array, "batch _"]
    ) -> Float[Array, "batch out"]:
        h = row_products(self.displacement(displacement), self.anchor(*anchor), self.rank)
        if self.backbone is not None:
            h = self.backbone(h)
        return h if self.head is None else self.head(h)


def row_products(f: Float[Array, "batch pb"], g: Float[Array, "batch pb"], rank: int) -> Float[Array, "batch p"]:
    """`h_i = Σ_j f_ij g_ij` for f, g read row-major as (p, rank). No √rank factor."""
    product = (f * g).reshape(*f.shape[:-1], -1, rank)
    return jnp.sum(product, axis=-1)
