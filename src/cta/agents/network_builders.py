"""The form of an agent's networks: MLP on the concatenation or bilinear, on vectors or on images.

A network's inputs are described by `parts`: the length of a vector, or OBSERVATION. Where observations are images the
network gets encoders of its own: one for both images laid over each other (early fusion), or one for each (late).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from cta.agents.base import Spec
from cta.config import ActorConfig, ConditionedConfig, Sizes
from cta.nn import FEATURES, BilinearTrunk, Encoded, Ensemble, Impala, Mlp

OBSERVATION = None
Part = int | None
Make = Callable[[PRNGKeyArray, list[int]], Any]
SMALL = 0.01  # scale of heads that should start near zero


def encoded(key: PRNGKeyArray, spec: Spec, parts: Sequence[Part], make: Make, *, early: bool = False) -> Any:
    """`make(key, sizes of the inputs)`, behind encoders if observations are images."""
    if spec.image_shape is None or OBSERVATION not in parts:
        return make(key, [spec.observation_dim if part is None else part for part in parts])
    *size, channels = spec.image_shape
    early = early and list(parts[:2]) == [OBSERVATION, OBSERVATION]
    if early:
        parts, channels = parts[1:], 2 * channels
    network_key, *keys = jax.random.split(key, 1 + len(parts))
    encoders = tuple(
        Impala(k, channels, size=(size[0], size[1])) if part is OBSERVATION else None
        for k, part in zip(keys, parts, strict=True)
    )
    sizes = [FEATURES if part is None else part for part in parts]
    return Encoded(encoders, make(network_key, sizes), early)


def mlp(
    key: PRNGKeyArray,
    spec: Spec,
    parts: Sequence[Part],
    outputs: int,
    *,
    hidden: Sizes,
    layer_norm: bool,
    head_scale: float = 1.0,
    members: int | None = None,
    early: bool = False,
) -> Any:
    """An MLP of all inputs, or an ensemble of `members`."""

    def make(key: PRNGKeyArray, sizes: list[int]) -> Any:
        def one(k: PRNGKeyArray) -> Mlp:
            return Mlp(k, sum(sizes), [*hidden, outputs], layer_norm=layer_norm, head_scale=head_scale)

        return one(key) if members is None else Ensemble(key, members, one)

    return encoded(key, spec, parts, make, early=early)


def bilinear(
    key: PRNGKeyArray,
    spec: Spec,
    parts: Sequence[Part],
    outputs: int,
    *,
    config: ConditionedConfig,
    members: int | None = None,
) -> Any:
    """Bilinear in the first input and all others, or an ensemble of `members`."""
    options = {name: getattr(config.trunk, name) for name in config.trunk.__dataclass_fields__}

    def make(key: PRNGKeyArray, sizes: list[int]) -> Any:
        def one(k: PRNGKeyArray) -> BilinearTrunk:
            head = {"layer_norm": config.layer_norm, "head_scale": SMALL}
            return BilinearTrunk(k, sizes[0], sum(sizes[1:]), outputs, **options, **head)

        return one(key) if members is None else Ensemble(key, members, one)

    return encoded(key, spec, parts, make)


def policy(
    key: PRNGKeyArray, spec: Spec, condition: Part, outputs: int, *, config: ActorConfig, hidden: Sizes | None = None
) -> Any:
    """Means of a Gaussian given (condition, state). `hidden` asks for a plain MLP whatever the configured form."""
    if isinstance(config, ConditionedConfig) and config.networks == "bilinear" and hidden is None:
        return bilinear(key, spec, (condition, OBSERVATION), outputs, config=config)
    sizes, norm = hidden or config.hidden, config.actor_layer_norm
    parts = (condition, OBSERVATION)
    return mlp(key, spec, parts, outputs, hidden=sizes, layer_norm=norm, head_scale=SMALL, early=True)


def value(
    key: PRNGKeyArray, spec: Spec, condition: Part, *, config: ConditionedConfig, members: int, actions: bool = False
) -> Any:
    """V(condition, state), or Q(condition, state, action) with `actions`: an ensemble with one output."""
    parts = (condition, OBSERVATION, *([spec.action_dim] if actions else []))
    if config.networks == "bilinear":
        return bilinear(key, spec, parts, 1, config=config, members=members)
    options = {"hidden": config.hidden, "layer_norm": config.layer_norm}
    return mlp(key, spec, parts, 1, **options, members=members, early=True)
