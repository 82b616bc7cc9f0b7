"""The theory as a laboratory: exact temporal distances on small processes, and the paper's claims about them.

The names below are what one needs to try an idea, and need NumPy and SciPy only; the modules hold the rest.
`cta_theory.bridge`, which trains the project's dual learner on such a process, is the one module that imports JAX.
"""

from cta_theory.distance import field, fields, surrogate_return, temporal_distance
from cta_theory.factorisation import bilinear_complete, factorise, numerical_rank
from cta_theory.invariance import context_invariance, context_pairs, dual_accuracy
from cta_theory.mdp import MDP, desk_skeleton, locked_slider, sliders

__all__ = ["MDP", "bilinear_complete", "context_invariance", "context_pairs", "desk_skeleton", "dual_accuracy"]
__all__ += ["factorise", "field", "fields", "locked_slider", "numerical_rank", "sliders"]
__all__ += ["surrogate_return", "temporal_distance"]
