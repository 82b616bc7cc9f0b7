"""Where the device's time goes: a trace of some steps, its kernels summed up by kind."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from cta.bench.cases import Case
from cta.bench.train import BLOCK
from cta.data import TrajectoryDataset
from cta.training.seeds import SeedGroup
from cta.training.source import CHUNK, ResidentSource

STEPS = 50
"""Steps traced on a CPU; on an accelerator it is a chunk."""
LARGEST = 12
"""Kernels listed by name."""

KINDS = (
    ("matmul", r"gemm|cutlass|cublas|nvjet|dot|xmma|matmul|ynn"),
    ("optimiser", r"adam|optimi[sz]er|ema|apply_updates|incremental"),
    ("copies", r"memcpy|memset|copy|concatenate|transpose|slice|gather|pad|broadcast|bitcast"),
    ("layer norm, elementwise, reduction", r"."),
)
"""Kinds and what their names or source scopes contain; the first that fits."""


def measure_profile(case: Case, dataset: TrajectoryDataset) -> list[dict[str, Any]]:
    """An entry `profile` for each kind of kernel, and for the largest kernels: milliseconds a step."""
    learner = case.learner(dataset, block=BLOCK)
    group = SeedGroup(learner, range(case.seeds), ResidentSource.of(dataset, graph=False))
    steps = STEPS if jax.default_backend() == "cpu" else CHUNK
    group.run(steps)
    with tempfile.TemporaryDirectory(prefix="cta-bench-trace-") as folder:
        jax.profiler.start_trace(folder)
        group.run(steps)
        jax.profiler.stop_trace()
        events = list(_events(Path(folder)))
    scopes = {} if jax.default_backend() == "cpu" else kernel_scopes(group.program_text())
    facts = case.facts()
    kinds: Counter[str] = Counter()
    names: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for name, scope, nanoseconds in events:
        kind = _kind(name, scopes.get(name, scope))
        kinds[kind] += nanoseconds
        launches[kind] += 1
        names[re.sub(r"[._]\d+$", "", name)] += nanoseconds

    def entry(what: str, key: str, nanoseconds: int) -> dict[str, Any]:
        return {"what": what, **facts, "kind": key, "ms_per_step": round(nanoseconds / 1e6 / steps, 4)}

    by_kind = [entry("profile", key, t) | {"kernels_per_step": launches[key] / steps} for key, t in kinds.most_common()]
    return by_kind + [entry("kernels", key, t) for key, t in names.most_common(LARGEST)]


def kernel_scopes(program: str) -> dict[str, str]:
    """For each kernel of a compiled program the part of our code it comes from; the trace knows the names alone."""
    found = re.findall(r'^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name="([^"]*)"', program, re.MULTILINE)
    return {re.sub(r"[.-]", "_", name): scope for name, scope in found}


def _kind(name: str, scope: str) -> str:
    text = f"{name} {scope.rsplit('/', 2)[-2:]}".lower()
    for kind, pattern in KINDS:
        if re.search(pattern, scope.lower() if kind == "optimiser" else text):
            return kind
    return KINDS[-1][0]


def _events(folder: Path) -> Iterator[tuple[str, str, int]]:
    """(name, source scope, nanoseconds) of every kernel; on a CPU of every operation the compiled program ran."""
    on_cpu = jax.default_backend() == "cpu"
    for file in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            if not on_cpu and "/device:" not in plane.name:
                continue
            for line in plane.lines:
                if not on_cpu and not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    facts = {str(key): value for key, value in event.stats}
                    if not on_cpu or "hlo_op" in facts:
                        yield event.name, str(facts.get("name") or facts.get("tf_op") or ""), int(event.duration_ns)
