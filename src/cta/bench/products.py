"""The matrix products of a compiled program, counted in its text and timed alone."""

import re
import time
from collections import Counter
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp

REPEATS, ROUNDS = 8, 5

_SHAPE = r"f32\[([\d,]*)\](?:\{[^}]*\})?"
_DOT = re.compile(rf"= {_SHAPE} dot\(([^)]*)\), (.*)")
_DIMS = re.compile(r"(lhs|rhs)_(batch|contracting)_dims=\{([\d,]*)\}")
_DEFINED = re.compile(rf"^\s*(?:ROOT )?%?([\w.\-]+) = {_SHAPE}")


class Product(NamedTuple):
    """One product: shapes of both sides, and which axes are batched and summed over."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    contracting: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def flop(self) -> int:
        """Multiplications and additions."""
        summed = prod(self.left[i] for i in self.contracting[0])
        batched = prod(self.left[i] for i in self.batch[0])
        return 2 * prod(self.left) * prod(self.right) // (summed * batched)


def count_products(text: str) -> Counter[Product]:
    """The float32 products in the text of a compiled program."""
    shapes = {found[1]: _numbers(found[2]) for line in text.splitlines() if (found := _DEFINED.match(line))}
    products: Counter[Product] = Counter()
    for line in text.splitlines():
        found = _DOT.search(line)
        if not found:
            continue
        sides = [re.sub(r"^.*%", "", word.strip()) for word in found[2].split(", ") if "%" in word]
        dims = {(side, kind): _numbers(axes) for side, kind, axes in _DIMS.findall(found[3])}

        def both(kind: str, dims: dict[tuple[str, str], tuple[int, ...]] = dims) -> tuple[tuple[int, ...], ...]:
            return dims.get(("lhs", kind), ()), dims.get(("rhs", kind), ())

        contracting, batch = both("contracting"), both("batch")
        products[Product(shapes[sides[0]], shapes[sides[1]], contracting, batch)] += 1  # pyright: ignore
    return products


def time_products(products: Counter[Product]) -> float:
    """Processor seconds of these products alone: each kind timed by itself, the best of several rounds, summed up."""
    return sum(count * _time(product) for product, count in products.items())


def _time(product: Product) -> float:
    left, right = jnp.ones(product.left), jnp.ones(product.right)
    program = jax.jit(lambda a, b: jax.lax.dot_general(a, b, (product.contracting, product.batch)))
    result = program(left, right).block_until_ready()
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(REPEATS):
            result = program(left, right)
        result.block_until_ready()
        rounds.append((time.process_time() - begin) / REPEATS)
    return min(rounds)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)
