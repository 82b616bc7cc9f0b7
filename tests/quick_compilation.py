"""Nearly all that tests compute is computed once, so programs are compiled quickly rather than well."""

import os

# Commands that tests start inherit this. Without optimisation the older emitters of code take half the time.
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}
if os.environ.get("JAX_PLATFORMS") != "cpu" or QUICKLY.keys() & os.environ.keys():
    QUICKLY = {}


def as_people_do() -> dict[str, str]:
    """The environment of a command that compiles as it does outside of tests."""
    return {name: value for name, value in os.environ.items() if name not in QUICKLY}
