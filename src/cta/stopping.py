"""The signals that ask a command to stop."""

import signal


def asking() -> list[int]:
    """Ctrl-C, the end of a slot, and a terminal that was closed unless that is to be ignored, as `nohup` asks."""
    closed = [] if ignored(signal.SIGHUP) else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *closed]


def ignored(number: int) -> bool:
    """Whether whoever started this process had a signal ignored."""
    return signal.getsignal(number) is signal.SIG_IGN
