"""Random numbers in ONNX: JAX's generator, and what makes normal numbers of its bits."""

from functools import cache
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal
from jax.extend.random import threefry_prng_impl as generator

from cta.export.onnx_graph import Graph, is_key, rule, type_of, unsupported

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
KEY = jax.ShapeDtypeStruct((2,), np.uint32)


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
    return graph.put(define[name], shapes, *operands)


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
