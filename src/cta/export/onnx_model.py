"""A function as an ONNX model: each JAX primitive that a policy uses, as operators of opset 18.

One axis of the inputs may be a symbol, the batch. Random numbers are those of JAX's default generator, bit by bit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from onnx import checker, helper

from cta.export import onnx_random as _random_rules  # noqa: F401
from cta.export import onnx_rules as _rules  # noqa: F401
from cta.export.onnx_graph import Graph, type_of

OPSET, IR_VERSION = 18, 8
"""What onnxruntime runs from 1.22 on, the first version that adds uint32."""


def to_onnx(
    function: Callable[..., Any], weights: Any, names: Sequence[str], inputs: dict[str, Any], outputs: Sequence[str]
) -> tuple[bytes, list[str]]:
    """`function(weights, *inputs)` as a model of the inputs, and the names of the weights that it reads and holds.

    `names` are those of the weights' leaves; `inputs` are shapes with dtypes, the first of them with the batch first.
    """
    traced = jax.jit(function).trace(weights, *inputs.values()).jaxpr
    held = dict(zip(names, jax.tree.leaves(weights), strict=True))
    first, batch = next((name, value.shape[0]) for name, value in inputs.items())
    graph = Graph(held, first, batch)
    nodes, constants = graph.needed(graph.run(traced.jaxpr, traced.consts, [*held, *inputs]), outputs)
    ends = [list(map(_info, inputs, inputs.values())), list(map(_info, outputs, traced.out_avals))]
    made = helper.make_graph(nodes, "policy", *ends, initializer=constants)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="cta")
    checker.check_model(model, full_check=True)
    return model.SerializeToString(), sorted(held.keys() & {constant.name for constant in constants})


def _info(name: str, value: Any) -> Any:
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    return helper.make_tensor_value_info(name, type_of(value.dtype), shape)
