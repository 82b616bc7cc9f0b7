"""What a start is made of: tracing, lowering and compiling, as JAX reports them."""

import jax.monitoring

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace_s",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower_s",
    "/jax/core/compile/backend_compile_duration": "compile_s",
}
"""The last one includes, or with a warm cache is, reading compiled programs from disk."""


class CompileClock:
    """Seconds of each phase in this process since it was made."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES.values(), 0.0)
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event in PHASES:
            self._seconds[PHASES[event]] += duration_secs

    def read(self) -> dict[str, float]:
        return {name: round(seconds, 2) for name, seconds in self._seconds.items()}
