"""cta resume"""

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

DESCRIPTION = """\
Continue a run that was stopped, killed or cut off, from its newest checkpoint (or from the beginning if it has none).

On a CPU the result is bit for bit that of a run that was never stopped. Rows logged after the checkpoint are written
again; evaluations that were in flight are done again.

  cta resume runs/desk-play-v0/cta-20260101-120000

exit codes: 0 done, 1 error, 2 wrong usage, 3 interrupted and resumable, 4 done, but a seed's numbers went bad
"""


def main(argv: list[str]) -> int:
    def parse(run: Annotated[Positional[str], arg(metavar="RUN", help="Run directory.")]) -> str:
        return run

    path = tyro.cli(parse, args=argv, prog="cta resume", description=DESCRIPTION)
    from cta import experiment
    from cta.cli.summary import conclude

    return conclude("resume", lambda: experiment.resume(path))
