"""The signals that ask a command to stop."""

import signal

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the end of a slot, a terminal that was closed."""


def unignored() -> list[int]:
    """Those that whoever started this process has not had ignored, as `nohup` does."""
    return [number for number in CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
