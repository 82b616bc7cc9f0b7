"""A function as an ONNX model: each JAX primitive that a policy uses, as operators of opset 18.

One axis of the inputs may be a symbol, the batch. Random numbers are those of JAX's default generator, bit by bit.
"""

from collections.abc import Callable, Sequence
from functools import cache
from string import ascii_letters
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal
from jax.extend.random import threefry_prng_impl as generator
from onnx import checker, helper

from cta.export.onnx_graph import Graph, is_key, rule, type_of, unsupported

OPSET, IR_VERSION = 18, 8  # what onnxruntime runs from 1.22 on, the first version that adds uint32
SAME = (  # by name alone, any number of operands that are broadcast like NumPy's
    "add=Add sub=Sub mul=Mul div=Div max=Max min=Min pow=Pow neg=Neg abs=Abs sign=Sign sqrt=Sqrt exp=Exp log=Log "
    "tanh=Tanh logistic=Sigmoid erf=Erf floor=Floor ceil=Ceil sin=Sin cos=Cos gt=Greater ge=GreaterOrEqual lt=Less "
    "le=LessOrEqual eq=Equal copy=Identity stop_gradient=Identity random_wrap=Identity random_unwrap=Identity"
)
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
KEY = jax.ShapeDtypeStruct((2,), np.uint32)
SHORT: dict[str, Callable[..., Any]] = {  # of what makes a node, the parameters, and the operands
    "rsqrt": lambda node, p, x: node("Reciprocal", node("Sqrt", x)),
    "square": lambda node, p, x: node("Mul", x, x),
    "rem": lambda node, p, x, y: node("Mod", x, y, fmod=1),
    "ne": lambda node, p, x, y: node("Not", node("Equal", x, y)),
    "is_finite": lambda node, p, x: node("Not", node("Or", node("IsNaN", x), node("IsInf", x))),
    "clamp": lambda node, p, low, x, high: node("Min", high, node("Max", low, x)),
    "convert_element_type": lambda node, p, x: node("Cast", x, to=type_of(p["new_dtype"])),
    "concatenate": lambda node, p, *parts: node("Concat", *parts, axis=p["dimension"]),
    "stack": lambda node, p, *x: node("Concat", *(node("Unsqueeze", one, [p["axis"]]) for one in x), axis=p["axis"]),
    "split": lambda node, p, x: node("Split", x, list(p["sizes"]), outputs=len(p["sizes"]), axis=p["axis"]),
    "squeeze": lambda node, p, x: node("Squeeze", x, list(p["dimensions"])),
    "expand_dims": lambda node, p, x: node("Unsqueeze", x, list(p["dimensions"])),
    "transpose": lambda node, p, x: node("Transpose", x, perm=list(p["permutation"])),
}
for pair in SAME.split():
    primitive, operator = pair.split("=")
    SHORT[primitive] = lambda node, p, *x, operator=operator: node(operator, *x)
for kind in ("Sum", "Max", "Min", "Prod"):
    SHORT[f"reduce_{kind.lower()}"] = lambda node, p, x, kind=kind: node(f"Reduce{kind}", x, [*p["axes"]], keepdims=0)


@rule(*SHORT)
def _short(graph: Graph, equation: Any, *operands: str) -> Any:
    return SHORT[equation.primitive.name](graph.node, equation.params, *operands)


@rule("and", "or", "xor", "not")
def _logic(graph: Graph, equation: Any, *operands: str) -> str:
    operator = equation.primitive.name.title()
    return graph.node(operator if equation.invars[0].aval.dtype == bool else f"Bitwise{operator}", *operands)


@rule("integer_pow")
def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    power, made = equation.params["y"], x
    for _ in range(abs(power) - 1):
        made = graph.node("Mul", made, x)
    if power == 0:
        raise unsupported("integer_pow of 0")
    return graph.node("Reciprocal", made) if power < 0 else made


@rule("select_n")
def _select(graph: Graph, equation: Any, which: str, *cases: str) -> str:
    if len(cases) != 2 or equation.invars[0].aval.dtype != bool:
        raise unsupported("select_n of more than two cases")
    return graph.node("Where", which, cases[1], cases[0])


@rule("slice")
def _slice(graph: Graph, equation: Any, x: str) -> str:
    p, sizes = equation.params, equation.invars[0].aval.shape
    spans = zip(p["start_indices"], p["limit_indices"], p["strides"] or (1,) * len(sizes), strict=True)
    cut = {axis: span for axis, span in enumerate(spans) if span != (0, sizes[axis], 1)}
    if not cut:
        return x
    starts, ends, strides = zip(*cut.values(), strict=True)
    return graph.node("Slice", x, starts, ends, list(cut), strides)


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


@rule("shift_left", "shift_right_logical")
def _shift(graph: Graph, equation: Any, x: str, by: str) -> str:
    amount, width = equation.invars[1], 8 * equation.invars[0].aval.dtype.itemsize
    if isinstance(amount, Literal) and int(amount.val) >= width:
        return graph.node("BitwiseXor", x, x)  # nothing is left
    return graph.node("BitShift", x, by, direction="LEFT" if equation.primitive.name == "shift_left" else "RIGHT")


@rule("bitcast_convert_type")
def _bitcast(graph: Graph, equation: Any, bits: str) -> str:
    """The float32 of these bits, by its parts; of the numbers that have a leading 1."""
    if (equation.invars[0].aval.dtype, equation.params["new_dtype"]) != (np.uint32, np.float32):
        raise unsupported("bitcast_convert_type other than from uint32 to float32")

    def part(shift: int, mask: int) -> str:
        moved = graph.node("BitShift", bits, np.uint32(shift), direction="RIGHT")
        return graph.node("Cast", graph.node("BitwiseAnd", moved, np.uint32(mask)), to=type_of(np.float32))

    significand = graph.node("Add", graph.node("Mul", part(0, 2**23 - 1), np.float32(2.0**-23)), np.float32(1))
    power = graph.node("Pow", np.float32(2), graph.node("Sub", part(23, 255), np.float32(127)))
    sign = graph.node("Sub", np.float32(1), graph.node("Mul", part(31, 1), np.float32(2)))
    return graph.node("Mul", graph.node("Mul", significand, power), sign)


@cache
def _inverse_erf() -> list[np.ndarray]:
    """erf⁻¹(x)/x as polynomials, highest power first: of w − 2.5 up to w = 5, of √w − 3 beyond; w = −log(1 − x²)."""
    from scipy.special import erfinv

    fits = []
    for low, high, moved in [(1e-9, 5, lambda w: w - 2.5), (5, 17, lambda w: np.sqrt(w) - 3)]:
        w = np.linspace(low, high, 4001)
        x = np.sqrt(-np.expm1(-w))
        fits.append(np.polyfit(moved(w), erfinv(x) / x, 9).astype(np.float32))
    return fits


@rule("erf_inv")
def _erf_inv(graph: Graph, equation: Any, x: str) -> str:
    # With x² rounded, as the compiler has it: exact numbers would differ from its own in the tails.
    w = graph.node("Neg", graph.node("Log", graph.node("Sub", np.float32(1), graph.node("Mul", x, x))))
    places = graph.node("Sub", w, np.float32(2.5)), graph.node("Sub", graph.node("Sqrt", w), np.float32(3))
    sums = []
    for place, coefficients in zip(places, _inverse_erf(), strict=True):
        made: Any = coefficients[0]
        for coefficient in coefficients[1:]:
            made = graph.node("Add", graph.node("Mul", made, place), coefficient)
        sums.append(made)
    return graph.node("Mul", x, graph.node("Where", graph.node("Less", w, np.float32(5)), *sums))


@rule("random_seed", "random_fold_in", "random_split", "random_bits")
def _random(graph: Graph, equation: Any, *operands: str) -> str:
    """JAX's own definition, of which `threefry2x32` remains; the array of a key has one axis more than JAX says."""
    p, name = equation.params, equation.primitive.name
    key = (equation.outvars if name == "random_seed" else equation.invars)[0].aval
    if str(key.dtype) != "key<fry>" or any(atom.aval.shape for atom in equation.invars):
        raise unsupported(f"{name} of {key.dtype}{list(key.shape)}")
    define = {
        "random_seed": generator.seed,
        "random_fold_in": generator.fold_in,
        "random_split": lambda key: generator.split(key, p["shape"]),
        "random_bits": lambda key: generator.random_bits(key, p["bit_width"], p["shape"]),
    }
    shapes = [KEY if is_key(atom.aval) else atom.aval for atom in equation.invars]
    inner = jax.jit(define[name]).trace(*shapes).jaxpr
    return graph.run(inner.jaxpr, inner.consts, operands)[0]


@rule("iota_2x32_shape")
def _count(graph: Graph, equation: Any) -> list[str]:
    """0, 1, 2, … in an array, as the high and the low half of 64-bit numbers: fewer than 2³² of them."""
    shape = graph.shape(equation.params["shape"])
    size = graph.node("ReduceProd", shape, keepdims=0)
    low = graph.node("Cast", graph.node("Range", np.int64(0), size, np.int64(1)), to=type_of(np.uint32))
    low = graph.node("Reshape", low, shape)
    return [graph.node("BitwiseXor", low, low), low]


@rule("threefry2x32")
def _threefry(graph: Graph, equation: Any, first: str, second: str, x: str, y: str) -> list[str]:
    """Threefry-2x32 with 20 rounds (Salmon and others, 2011)."""
    keys = [first, second, graph.node("BitwiseXor", graph.node("BitwiseXor", first, second), np.uint32(0x1BD11BDA))]
    x, y = graph.node("Add", x, first), graph.node("Add", y, second)
    for turn in range(5):
        for distance in ROTATIONS[turn % 2]:
            x = graph.node("Add", x, y)
            left = graph.node("BitShift", y, np.uint32(distance), direction="LEFT")
            right = graph.node("BitShift", y, np.uint32(32 - distance), direction="RIGHT")
            y = graph.node("BitwiseXor", graph.node("BitwiseOr", left, right), x)
        x = graph.node("Add", x, keys[(turn + 1) % 3])
        y = graph.node("Add", graph.node("Add", y, keys[(turn + 2) % 3]), np.uint32(turn + 1))
    return [x, y]


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
