"""Network modules: immutable Equinox pytrees, called on whole batches."""

from cta.nn.bilinear import BilinearTrunk
from cta.nn.encoded import Encoded
from cta.nn.ensemble import Ensemble
from cta.nn.impala import FEATURES, Impala
from cta.nn.layers import LayerNorm, Linear, Mlp
from cta.nn.projection import Projection, scale_to_length
from cta.nn.quasimetric import Quasimetric

__all__ = [
    "FEATURES",
    "BilinearTrunk",
    "Encoded",
    "Ensemble",
    "Impala",
    "LayerNorm",
    "Linear",
    "Mlp",
    "Projection",
    "Quasimetric",
    "scale_to_length",
]
