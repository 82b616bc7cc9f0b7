"""Network modules: immutable Equinox pytrees, called on whole batches."""

from cta.nn.bilinear import BilinearTrunk
from cta.nn.ensemble import Ensemble
from cta.nn.joint import JointMlp
from cta.nn.layers import LayerNorm, Linear, Mlp
from cta.nn.projection import Projection, scale_to_length

__all__ = ["BilinearTrunk", "Ensemble", "JointMlp", "LayerNorm", "Linear", "Mlp", "Projection", "scale_to_length"]
