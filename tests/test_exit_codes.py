"""Signals that whoever started a process had ignored: `nohup` does so with SIGHUP, a shell's `&` with SIGINT."""

import signal
import sys
from types import SimpleNamespace

import pytest

from cta import cli
from cta.exit_codes import Stop, stop_signals

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(params=ASKING, ids=lambda number: number.name)
def ignored(request):
    """One of the signals, while it is ignored."""
    before = {number: signal.getsignal(number) for number in ASKING}
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN if number == request.param else signal.default_int_handler)
    yield request.param
    for number, handler in before.items():
        signal.signal(number, handler)


def heard() -> set[int]:
    """The signals that something is done about."""
    return {number for number in ASKING if signal.getsignal(number) not in (signal.SIG_IGN, signal.default_int_handler)}


def test_an_ignored_signal_stays_ignored(ignored, monkeypatch):
    others = set(ASKING) - {ignored}
    assert set(stop_signals()) == others
    with Stop().on_signals(say=print, how_to_resume=""):
        assert heard() == others
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(sys, "argv", ["cta", "--version"])
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit):
        cli.main()
    lost = SimpleNamespace(exc_value=RuntimeError("Event loop is closed"))
    sys.unraisablehook(lost)
    assert told == [lost]  # whoever filters what libraries drop goes on doing so
    assert heard() == others and signal.getsignal(ignored) is signal.SIG_IGN
