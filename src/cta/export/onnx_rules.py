"""Arrays: what each primitive is in ONNX."""

from functools import partial
from string import ascii_letters
from typing import Any

import numpy as np

from cta.export.onnx_graph import RULES, Graph, is_key, rule, type_of, unsupported

SAME = (  # by name alone, any number of operands that are broadcast like NumPy's
    "add=Add sub=Sub mul=Mul div=Div max=Max min=Min pow=Pow neg=Neg abs=Abs sign=Sign sqrt=Sqrt exp=Exp log=Log "
    "tanh=Tanh logistic=Sigmoid erf=Erf floor=Floor ceil=Ceil sin=Sin cos=Cos gt=Greater ge=GreaterOrEqual lt=Less "
    "le=LessOrEqual eq=Equal copy=Identity stop_gradient=Identity random_wrap=Identity random_unwrap=Identity"
)
LOGIC = "and=And or=Or xor=Xor not=Not"  # of truth values; of bits BitwiseAnd and so on
REDUCE = "reduce_sum=ReduceSum reduce_max=ReduceMax reduce_min=ReduceMin reduce_prod=ReduceProd"


def _each(pairs: str, make: Any) -> None:
    for pair in pairs.split():
        primitive, operator = pair.split("=")
        RULES[primitive] = partial(make, operator)


_each(SAME, lambda operator, graph, equation, *x: graph.node(operator, *x))
_each(REDUCE, lambda operator, graph, equation, x: graph.node(operator, x, list(equation.params["axes"]), keepdims=0))
_each(
    LOGIC,
    lambda operator, graph, equation, *x: graph.node(
        operator if equation.invars[0].aval.dtype == bool else f"Bitwise{operator}", *x
    ),
)
RULES |= {
    "rsqrt": lambda graph, equation, x: graph.node("Reciprocal", graph.node("Sqrt", x)),
    "square": lambda graph, equation, x: graph.node("Mul", x, x),
    "rem": lambda graph, equation, x, y: graph.node("Mod", x, y, fmod=1),
    "ne": lambda graph, equation, x, y: graph.node("Not", graph.node("Equal", x, y)),
    "clamp": lambda graph, equation, low, x, high: graph.node("Min", high, graph.node("Max", low, x)),
    "convert_element_type": lambda graph, equation, x: graph.node("Cast", x, to=type_of(equation.params["new_dtype"])),
    "concatenate": lambda graph, equation, *parts: graph.node("Concat", *parts, axis=equation.params["dimension"]),
    "squeeze": lambda graph, equation, x: graph.node("Squeeze", x, list(equation.params["dimensions"])),
    "expand_dims": lambda graph, equation, x: graph.node("Unsqueeze", x, list(equation.params["dimensions"])),
    "transpose": lambda graph, equation, x: graph.node("Transpose", x, perm=list(equation.params["permutation"])),
}


@rule("integer_pow")
def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    power, made = equation.params["y"], x
    for _ in range(abs(power) - 1):
        made = graph.node("Mul", made, x)
    if power == 0:
        raise unsupported("integer_pow of 0")
    return graph.node("Reciprocal", made) if power < 0 else made


@rule("is_finite")
def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    return graph.node("Not", graph.node("Or", graph.node("IsNaN", x), graph.node("IsInf", x)))


@rule("select_n")
def _select(graph: Graph, equation: Any, which: str, *cases: str) -> str:
    if len(cases) != 2 or equation.invars[0].aval.dtype != bool:
        raise unsupported("select_n of more than two cases")
    return graph.node("Where", which, cases[1], cases[0])


@rule("stack")
def _stack(graph: Graph, equation: Any, *parts: str) -> str:
    axis = equation.params["axis"]
    return graph.node("Concat", *(graph.node("Unsqueeze", part, [axis]) for part in parts), axis=axis)


@rule("split")
def _split(graph: Graph, equation: Any, x: str) -> Any:
    sizes = [int(size) for size in equation.params["sizes"]]
    return graph.node("Split", x, sizes, outputs=len(sizes), axis=equation.params["axis"])


@rule("slice")
def _slice(graph: Graph, equation: Any, x: str) -> str:
    p, sizes = equation.params, equation.invars[0].aval.shape
    strides = p["strides"] or (1,) * len(sizes)
    cut = [
        axis
        for axis, size in enumerate(sizes)
        if (p["start_indices"][axis], p["limit_indices"][axis], strides[axis]) != (0, size, 1)
    ]
    ends = [[int(values[axis]) for axis in cut] for values in (p["start_indices"], p["limit_indices"], strides)]
    return graph.node("Slice", x, ends[0], ends[1], cut, ends[2]) if cut else x


@rule("reshape")
def _reshape(graph: Graph, equation: Any, x: str) -> str:
    sizes = equation.outvars[0].aval.shape
    if is_key(equation.invars[0].aval):
        raise unsupported("reshape of random keys")
    fixed = [size if isinstance(size, int) else -1 for size in sizes]
    return graph.node("Reshape", x, fixed if fixed.count(-1) < 2 else graph.shape(sizes))


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, equation: Any, x: str) -> str:
    before, after = equation.invars[0].aval, equation.outvars[0].aval.shape
    if is_key(before):
        raise unsupported("broadcast_in_dim of random keys")
    places = equation.params["broadcast_dimensions"]
    new = [axis for axis in range(len(after)) if axis not in places]
    wide = graph.node("Unsqueeze", x, new) if new else x
    # An axis that is there already is kept by a 1.
    there = {axis for axis, size in zip(places, before.shape, strict=True) if size == after[axis]}
    target = [1 if axis in there else size for axis, size in enumerate(after)]
    return wide if all(size == 1 for size in target) else graph.node("Expand", wide, graph.shape(target))


@rule("dot_general")
def _dot(graph: Graph, equation: Any, x: str, y: str) -> str:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    ranks = [len(atom.aval.shape) for atom in equation.invars]
    if not left_batch and (tuple(left), tuple(right), ranks[1]) == ((ranks[0] - 1,), (0,), 2):
        return graph.node("MatMul", x, y)
    letters = iter(ascii_letters)
    x_names, y_names = ([next(letters) for _ in range(rank)] for rank in ranks)
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        y_names[j] = x_names[i]
    batch = [x_names[i] for i in left_batch]
    free = [name for i, name in enumerate(x_names) if i not in (*left, *left_batch)]
    free += [name for j, name in enumerate(y_names) if j not in (*right, *right_batch)]
    return graph.node("Einsum", x, y, equation=f"{''.join(x_names)},{''.join(y_names)}->{''.join(batch + free)}")


@rule("conv_general_dilated")
def _conv(graph: Graph, equation: Any, x: str, kernel: str) -> str:
    p = equation.params
    if p["batch_group_count"] != 1 or set(p["lhs_dilation"]) != {1}:
        raise unsupported("a transposed convolution")
    before, weights, after = p["dimension_numbers"]
    low, high = zip(*p["padding"], strict=True)
    made = graph.node(
        "Conv",
        graph.node("Transpose", x, perm=list(before)),
        graph.node("Transpose", kernel, perm=list(weights)),
        strides=p["window_strides"], pads=[*low, *high], dilations=p["rhs_dilation"], group=p["feature_group_count"],
    )  # fmt: skip
    return graph.node("Transpose", made, perm=np.argsort(after).tolist())


@rule("reduce_window_max")
def _max_pool(graph: Graph, equation: Any, x: str) -> str:
    p, sides = equation.params, slice(1, -1)
    whole = [p["window_dimensions"], p["window_strides"], p["base_dilation"]]
    if any(sizes[0] != 1 or sizes[-1] != 1 for sizes in whole) or set(p["base_dilation"]) != {1}:
        raise unsupported("reduce_window_max of other than the middle axes")
    low, high = zip(*p["padding"][sides], strict=True)
    rank = len(p["window_dimensions"])
    made = graph.node(
        "MaxPool",
        graph.node("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)]),
        kernel_shape=p["window_dimensions"][sides], strides=p["window_strides"][sides],
        dilations=p["window_dilation"][sides], pads=[*low, *high],
    )  # fmt: skip
    return graph.node("Transpose", made, perm=[0, *range(2, rank), 1])


@rule("sort")
def _sort(graph: Graph, equation: Any, *columns: str) -> Any:
    p, sizes = equation.params, equation.invars[0].aval.shape
    if p["num_keys"] != 1:
        raise unsupported("a sort by several keys")
    axis = p["dimension"]
    first, order = graph.node("TopK", columns[0], [sizes[axis]], outputs=2, axis=axis, largest=0, sorted=1)
    return [first, *(graph.node("GatherElements", column, order, axis=axis) for column in columns[1:])]


@rule("gather")
def _gather(graph: Graph, equation: Any, x: str, index: str) -> str:
    """One place of one axis or of several; anything else is refused."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape, axes = equation.invars[0].aval.shape, list(numbers.start_index_map)
    whole = all(size == 1 if axis in axes else size == shape[axis] for axis, size in enumerate(sizes))
    if not whole or sorted(axes) != list(numbers.collapsed_slice_dims) or equation.invars[1].aval.shape != (len(axes),):
        raise unsupported("gather of other than single places")
    for axis in sorted(axes, reverse=True):
        x = graph.node("Gather", x, graph.node("Gather", index, axes.index(axis), axis=0), axis=axis)
    return x
