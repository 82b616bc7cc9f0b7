"""Streams that may go away."""

import contextlib
from typing import Any, TextIO, cast


class Listener:
    """A stream whose end may go away (a terminal, a pipe, a full disk); what speaks goes on without it."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def listener(stream: TextIO) -> TextIO:
    """The same stream, to which writing never fails."""
    return cast(TextIO, Listener(stream))
