"""`python -m cta_bench.child`: reads a request as JSON from standard input and prints its entries as the last line."""

import json
import sys

from cta.compilation import enable_cache, keep_programs
from cta.errors import CtaError
from cta.io.provenance import hardware
from cta_bench.cases import READY, Case
from cta_bench.clock import when_warm
from cta_bench.reference import measure_reference
from cta_bench.training import measure_compare, measure_profile, measure_start, measure_train

MEASURES = {
    "train": measure_train,
    "start": measure_start,
    "compare": measure_compare,
    "profile": measure_profile,
    "reference": measure_reference,
}


def _take_turns() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


def main() -> int:
    enable_cache()
    keep_programs()
    try:
        request = json.loads(sys.stdin.readline())
        if request["wait"]:
            when_warm.append(_take_turns)
        case = Case(**request["case"])
        entries = MEASURES[request["do"]](case, case.open_data())
        print(json.dumps({"entries": entries, "hardware": hardware()}))
    except CtaError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
