"""The theory as a laboratory: exact temporal distances on small processes, and the paper's claims about them.

Needs NumPy and SciPy only. `cta.theory.bridge`, which trains the project's dual learner on such a process, is the one
module here that imports JAX and is therefore not imported by this package.
"""

from cta.theory.assumptions import (
    blocks,
    check_abstraction,
    check_consistency,
    check_finite_distances,
    check_probe_completeness,
    close_support,
    difference_decoder,
    global_decoder,
)
from cta.theory.distance import (
    field,
    fields,
    greedy_from_field,
    implied_distance,
    optimal_actions,
    policy_values,
    surrogate_iteration,
    surrogate_return,
    temporal_distance,
    value_iteration,
)
from cta.theory.factorisation import (
    bilinear_complete,
    block_risks,
    dual_analogy,
    factorise,
    numerical_rank,
    transduction_bound,
)
from cta.theory.invariance import context_invariance, context_pairs, dual_accuracy, measure_embeddings
from cta.theory.lights import LightsOut
from cta.theory.mdp import MDP
from cta.theory.transduction import transduce
from cta.theory.worlds import (
    desk_skeleton,
    directed_cycle,
    exogenous_product,
    lights_out,
    locked_slider,
    one_way_door,
    random_graph,
    random_mdp,
    sliders,
)

__all__ = [
    "MDP",
    "LightsOut",
    "bilinear_complete",
    "block_risks",
    "blocks",
    "check_abstraction",
    "check_consistency",
    "check_finite_distances",
    "check_probe_completeness",
    "close_support",
    "context_invariance",
    "context_pairs",
    "desk_skeleton",
    "difference_decoder",
    "directed_cycle",
    "dual_accuracy",
    "dual_analogy",
    "exogenous_product",
    "factorise",
    "field",
    "fields",
    "global_decoder",
    "greedy_from_field",
    "implied_distance",
    "lights_out",
    "locked_slider",
    "measure_embeddings",
    "numerical_rank",
    "one_way_door",
    "optimal_actions",
    "policy_values",
    "random_graph",
    "random_mdp",
    "sliders",
    "surrogate_iteration",
    "surrogate_return",
    "temporal_distance",
    "transduce",
    "transduction_bound",
    "value_iteration",
]
