"""A command in a terminal of its own, which can be closed under it."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading

LISTENING = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a command that hears of a closed terminal, also in a suite that runs under nohup."""


class Terminal:
    """`setsid --ctty` makes the command the leader of the terminal's session, who is told when the terminal closes."""

    def __init__(self, command, **options):
        self._ours, its = pty.openpty()
        command = [sys.executable, "-c", LISTENING, "setsid", "--ctty", *command]
        self.process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, **options)
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
