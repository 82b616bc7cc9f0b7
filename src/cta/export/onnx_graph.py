"""An ONNX graph that grows by the equations of a traced program."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal
from onnx import helper, numpy_helper

from cta.errors import CtaError

CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint")  # programs themselves
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """`function(graph, equation, *operands)` gives the name, or the names, of what a primitive computes."""

    def keep(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return keep


def unsupported(what: str) -> CtaError:
    return CtaError(f"the policy uses {what}, which has no ONNX form here: export it with --format stablehlo")


def type_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def is_key(value: Any) -> bool:
    return str(value.dtype).startswith("key<")


class Graph:
    """Nodes and constants, as they are made. `batch` is the symbol of an axis of any size, first of `first_input`."""

    def __init__(self, weights: dict[str, Any], first_input: str, batch: Any):
        self._weights, self._input, self._batch = weights, first_input, batch
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._known: dict[Any, str] = {}
        self._names = count()

    def node(self, operator: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The name of a new node's output, or the names; operands that are no names are constants."""
        names = [f"{operator}{next(self._names)}" for _ in range(outputs)]
        inputs = [one if isinstance(one, str) else self.constant(one) for one in operands]
        self._nodes.append(helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, name: str = "") -> str:
        """An array as it is; lists and numbers of Python's become int64, for shapes and axes."""
        array = np.asarray(value, order="C") if hasattr(value, "dtype") else np.asarray(value, np.int64)
        key = name or (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = name or f"constant{next(self._names)}"
            self._constants[self._known[key]] = numpy_helper.from_array(array, self._known[key])
        return self._known[key]

    def shape(self, sizes: Sequence[Any]) -> str:
        """A shape as a tensor; of symbols only the batch itself is known."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        if any(not isinstance(size, int) and size != self._batch for size in sizes):
            raise unsupported(f"an array of shape {tuple(sizes)}")
        if "batch" not in self._known:
            self._known["batch"] = self.node("Shape", self._input, start=0, end=1)
        parts = [self.constant([size]) if isinstance(size, int) else self._known["batch"] for size in sizes]
        return self.node("Concat", *parts, axis=0)

    def run(self, jaxpr: Any, constants: Sequence[Any], operands: Sequence[str]) -> list[str]:
        names = dict(zip(jaxpr.invars, operands, strict=True))
        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            names[variable] = self.constant(np.asarray(jax.random.key_data(value) if is_key(value) else value))

        def name(atom: Any) -> str:
            if not isinstance(atom, Literal):
                found = names[atom]
                return self.constant(self._weights[found], found) if found in self._weights else found
            shaped: Any = atom.aval
            return self.constant(np.asarray(atom.val, shaped.dtype))

        for equation in jaxpr.eqns:
            kind, inputs = equation.primitive.name, [name(atom) for atom in equation.invars]
            if kind in CALLS:
                inner = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
                made = self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
            elif kind not in RULES:
                raise unsupported(kind)
            else:
                try:
                    made = RULES[kind](self, equation, *inputs)
                except CtaError:
                    raise
                except Exception:  # a symbol where a rule needs a number, in several kinds
                    shapes = ", ".join(str(atom.aval) for atom in equation.invars)
                    raise unsupported(f"{kind} of {shapes}") from None
            names |= dict(zip(equation.outvars, [made] if isinstance(made, str) else made, strict=True))
        return [name(atom) for atom in jaxpr.outvars]

    def needed(self, found: Sequence[str], outputs: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """Nodes and constants that the values `found` come from; these get the names `outputs`."""
        nodes, read = [], set(found)
        for node in reversed(self._nodes):
            if read.intersection(node.output):
                nodes.append(node)
                read.update(node.input)
        last = [
            helper.make_node("Identity", [one], [name], name=f"give_{name}")
            for one, name in zip(found, outputs, strict=True)
        ]
        return [*reversed(nodes), *last], [one for name, one in self._constants.items() if name in read]
