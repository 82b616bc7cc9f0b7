"""Training as the product does it: whole steps, compilation and memory, and where the device's time goes."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.monitoring

from cta.data import TrajectoryDataset
from cta.experiment.console import peak_device_bytes, peak_host_bytes
from cta.training.learner import to_device
from cta.training.seeds import CHUNK, SeedGroup, open_source
from cta_bench import Entry
from cta_bench.cases import Case
from cta_bench.clock import interleave, repeat, timed

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace_s",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower_s",
    "/jax/core/compile/backend_compile_duration": "compile_s",
}
"""JAX's events. The last one includes, or with a warm cache is, reading compiled programs from disk."""
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


def measure_train(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """Entries `train`, `compile` and `memory` of a case, through the seed group that training runs."""
    start, group = _start(case, dataset)
    parameters = sum(x[0].size for x in jax.tree.leaves(group.snapshot(lambda state: state.networks)))
    span = repeat(group.run, seconds=case.seconds)
    group.read_metrics(1)  # a blocking read: the steps have been taken, not only queued
    arrays = (dataset.observations, dataset.actions, dataset.valid_rows, dataset.goal_limits)
    data, device = sum(array.nbytes for array in arrays), peak_device_bytes()
    memory = {"host_peak_bytes": peak_host_bytes(), "device_peak_bytes": device, "data_bytes": data}
    memory["device_beside_data_bytes"] = None if device is None else device - data
    return [
        case.entry("train", **span.rates(case.seeds), parameters=parameters),
        case.entry("compile", **start),
        case.entry("memory", **memory),
    ]


def measure_start(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """Seconds from an opened dataset to the first finished steps, with whatever the compilation cache holds."""
    return [_start(case, dataset)[0]]


def _start(case: Case, dataset: TrajectoryDataset) -> tuple[Entry, SeedGroup]:
    """The first steps: one, or on an accelerator a whole chunk, which has a program of its own."""
    source, groups, phases = open_source(dataset), [], dict.fromkeys(PHASES.values(), 0.0)

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event in PHASES:
            phases[PHASES[event]] += duration_secs

    def begin(count: int) -> None:
        groups.append(case.group(dataset, source))
        groups[0].run(count)

    jax.monitoring.register_event_duration_secs_listener(note)
    span = timed(begin, 1 if jax.default_backend() == "cpu" else CHUNK)
    seconds = {"start_s": span.wall_s, "start_cpu_s": span.cpu_s, **phases}
    return {name: round(value, 2) for name, value in seconds.items()}, groups[0]


def measure_compare(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """An entry `compare`: fused and plain kernels in turns, in one process."""
    source = open_source(dataset)
    fused, plain = (replace(case, kernels=kernels).group(dataset, source) for kernels in ("fused", "plain"))
    pairs = interleave(fused.run, plain.run, seconds=2 * case.seconds, alike=True)
    rates = [sum(s.steps for s in spans) / sum(s.wall_s for s in spans) for spans in zip(*pairs, strict=True)]
    ratios = sorted(ours.steps_per_s / theirs.steps_per_s for ours, theirs in pairs)
    names = ("fused_seed_steps_per_s", "plain_seed_steps_per_s")
    measured = {name: round(case.seeds * rate, 2) for name, rate in zip(names, rates, strict=True)}
    spread = {"ratio_least": round(ratios[0], 3), "ratio_most": round(ratios[-1], 3), "turns": len(pairs)}
    return [case.entry("compare", **measured, ratio=round(rates[0] / rates[1], 3), **spread)]


def measure_profile(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """An entry `profile` for each kind of kernel, and for the largest kernels: milliseconds per step."""
    group = case.group(dataset, to_device(dataset), graph=False)
    on_cpu = jax.default_backend() == "cpu"
    steps = STEPS if on_cpu else CHUNK
    group.run(steps)
    with tempfile.TemporaryDirectory(prefix="cta-bench-trace-") as folder:
        with jax.profiler.trace(folder):
            group.run(steps)
        events = list(_events(Path(folder), on_cpu))
    scopes = {} if on_cpu else kernel_scopes(group.program_text())
    kinds, names, launches = Counter[str](), Counter[str](), Counter[str]()
    for name, scope, nanoseconds in events:
        kind = _kind(name, scopes.get(name, scope))
        kinds[kind] += nanoseconds
        launches[kind] += 1
        names[re.sub(r"[._]\d+$", "", name)] += nanoseconds

    def entry(what: str, kind: str, nanoseconds: int, **more: float) -> Entry:
        return case.entry(what, kind=kind, ms_per_step=round(nanoseconds / 1e6 / steps, 4), **more)

    by_kind = [entry("profile", kind, t, kernels_per_step=launches[kind] / steps) for kind, t in kinds.most_common()]
    return by_kind + [entry("kernels", name, t) for name, t in names.most_common(LARGEST)]


def kernel_scopes(program: str) -> dict[str, str]:
    """For each kernel of a compiled program the part of our code it comes from; the trace knows the names alone."""
    found = re.findall(r'^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name="([^"]*)"', program, re.MULTILINE)
    return {re.sub(r"[.-]", "_", name): scope for name, scope in found}


def _kind(name: str, scope: str) -> str:
    text = f"{name} {scope.rsplit('/', 2)[-2:]}".lower()
    fits = (kind for kind, words in KINDS if re.search(words, scope.lower() if kind == "optimiser" else text))
    return next(fits, KINDS[-1][0])


def _events(folder: Path, on_cpu: bool) -> Iterator[tuple[str, str, int]]:
    """(name, source scope, nanoseconds) of every kernel; on a CPU of every operation the compiled program ran."""
    files = [jax.profiler.ProfileData.from_file(str(file)) for file in folder.rglob("*.xplane.pb")]
    planes = [plane for file in files for plane in file.planes if on_cpu or "/device:" in plane.name]
    for line in (line for plane in planes for line in plane.lines if on_cpu or line.name.startswith("Stream")):
        for event in line.events:
            facts = {str(key): value for key, value in event.stats}
            if not on_cpu or "hlo_op" in facts:
                yield event.name, str(facts.get("name") or facts.get("tf_op") or ""), int(event.duration_ns)
