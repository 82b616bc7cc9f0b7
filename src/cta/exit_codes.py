"""How a command ends: its exit codes, and the signals that ask it to stop, or stop it at once."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

DONE, ERROR, USAGE = 0, 1, 2
INTERRUPTED = 3  # asked to stop; the same command, or `cta resume`, continues
SEED_STOPPED = 4  # trained to the end, but without a seed that diverged (NaN or inf)


def stop_signals() -> list[int]:
    """Ctrl-C, the end of a slot and a closed terminal, unless ignored: by a script's `&`, or by `nohup`."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]


class Stop(threading.Event):
    """Whether somebody asked the run to stop."""

    __bool__ = threading.Event.is_set

    @contextlib.contextmanager
    def on_signals(self, *, say: Callable[[str], None], how_to_resume: str) -> Iterator[None]:
        """The first signal asks; the second ends the process at once, whatever it is doing.

        Python runs signal handlers between two bytecodes of the main thread, which may be inside a compiler for a
        minute. So the handlers do nothing, and a thread reads the numbers that the interpreter writes when they arrive.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        arrived, written = socket.socketpair()
        written.setblocking(False)
        old_file = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, lambda number, frame: None) for number in stop_signals()}

        def listen() -> None:
            while found := arrived.recv(1):
                if found[0] not in old:
                    continue
                if self:
                    # No clean-up that could take long: checkpoints are atomic, workers leave with their parent.
                    cursor = "\033[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
                    print(f"{cursor}stopped at once; {how_to_resume}", file=sys.stderr, flush=True)
                    os._exit(INTERRUPTED)
                self.set()
                say("stopping after this block (once more to stop at once)")

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_file)
            written.close()
            listener.join()
            arrived.close()
