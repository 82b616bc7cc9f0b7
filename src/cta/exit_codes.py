"""How a command ends: its exit codes, and the signals that ask it to stop."""

import signal

DONE, ERROR, USAGE = 0, 1, 2
INTERRUPTED = 3
"""Asked to stop; the same command, or `cta resume`, continues."""
SEED_STOPPED = 4
"""Trained to the end, but without a seed that diverged (NaN or inf)."""


def stop_signals() -> list[int]:
    """Ctrl-C, the end of a slot and a closed terminal, as far as they are not ignored.

    Whoever starts a process may have them ignored: a script's `&` does so with the first, `nohup` with the last.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
