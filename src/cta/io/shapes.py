"""What the facts in files of runs, scores and weights look like, wherever they stand."""

from typing import Any

from cta.errors import CtaError
from cta.io.json_files import check_shape

TEXTS = {...: (str, None)}
MACHINE = {"cpu": (str, None), "device": (str, None), "backend": (str, None)}
PAIR = {"name": str, "K!": int, "context!": dict, "event!": dict}
COUNTS = {"pairs": [{"events": int, "removed": int}], "removed": int, "transitions_left": int}
CUT = {"kind": str, "first_pair": int, "pair": [PAIR], "thresholds": {...: float}, "event_thresholds": {...: float}}
CUT |= {"report": (COUNTS, None)}
MADE: dict[str, Any] = {"command": (str, None), "versions": (TEXTS, None), "dataset": str, "ooc": CUT}
MADE |= dict.fromkeys(("seed", "episodes", "episode_steps"), (int, None))
MADE |= {"source": ({"name": (str, None), "provenance": ({k: v for k, v in MADE.items() if k != "ooc"}, None)}, None)}
"""How a dataset was made, as a file of ours says it."""
DATA = {"name": (str, None), "fingerprint": (str, None), "transitions": (int, None), "provenance": (dict, None)}
RUN = {"command": (str, None), "commit": (str, None), "versions": TEXTS, "hardware": MACHINE, "dataset": DATA}
"""provenance.json of a run."""
TRAINING = {"seeds": [int], "steps": int, "command": (str, None), "cell": str, "data": (DATA, None)}
TRAINING |= {"settings": (dict, None), "versions": (TEXTS, None), "hardware": (MACHINE, None)}
TRAINING |= dict.fromkeys(("seeds_together", "wall_clock_s", "seed_steps_per_s"), (float, None))
"""One entry of a record's `training`."""
SCORING = {"scored!": [[float]], "episodes": int, "workers": int, "weights": str, "asked": str}
"""One entry of a record's `scoring`."""


def check_data(data: Any, where: str) -> None:
    """Replace how data were made, if others said it in a way of their own, by nothing; complain if ours is damaged."""
    if isinstance(data, dict) and "provenance" in data:
        data["provenance"] = known_maker(data["provenance"], where)


def known_maker(made: Any, where: str) -> dict[str, Any] | None:
    """How data were made, as we write it; an empty record if others wrote it in a way of their own."""
    if made is None:
        return None
    try:
        check_shape(made, MADE, f"{where}: provenance")
    except CtaError:
        if isinstance(made, dict) and (made.get("created_by") == "cta" or "ooc" in made):
            raise
        return {}
    return made
