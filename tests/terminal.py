"""A command in a terminal of its own, which can be closed under it."""

import contextlib
import os
import pty
import signal
import subprocess
import threading
from functools import partial


class Terminal:
    """`setsid --ctty` makes the command the leader of the terminal's session, who is told when the terminal closes."""

    def __init__(self, command, **options):
        self._ours, its = pty.openpty()
        streams = {"stdin": its, "stdout": its, "stderr": its}
        listening = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # also in a suite under nohup
        self.process = subprocess.Popen(["setsid", "--ctty", *command], preexec_fn=listening, **streams, **options)
        os.close(its)
        threading.Thread(target=self._read_on, daemon=True).start()

    def close(self) -> int:
        """Close it; the exit code of the command."""
        self.process.send_signal(signal.SIGSTOP)  # or the command could be over before the terminal is
        os.close(self._ours)
        self.process.send_signal(signal.SIGCONT)
        return self.process.wait(timeout=200)

    def _read_on(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self._ours, 4096):
                pass
