"""An error that nobody foresaw is one line, and its traceback a file."""

from pathlib import Path

from cta import cli


def test_an_unforeseen_error_is_one_line_with_a_file(monkeypatch, capfd, tmp_path):
    def fails(command):
        raise ZeroDivisionError("by\nnothing \x1b[31m")

    monkeypatch.setattr("cta.cli.doctor.Command.__call__", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.run(["doctor"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("cta doctor: internal error: ZeroDivisionError: by nothing") and "\x1b" not in line
    assert "Traceback" in Path(line.rpartition(" ")[2]).read_text()
