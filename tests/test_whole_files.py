"""A file that cannot be written to its end leaves what was there before, and nothing beside it."""

import os

import pytest

from cta.errors import CtaError
from cta_bench import command as bench
from cta_theory.report import draw_fields


def bench_record(folder):
    bench.write(folder / "record.json", [], {"device": "cpu", "backend": "cpu", "cpu": "", "cores": 2})


def figure_of_the_theory(folder):
    draw_fields(folder / "fields.png", 0.9)


@pytest.mark.parametrize("write", [bench_record, figure_of_the_theory])
def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch, write):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises((CtaError, OSError), match="No space left"):
            write(tmp_path)
    assert not list(tmp_path.iterdir())
    write(tmp_path)
    assert all(path.stat().st_size > 100 for path in tmp_path.iterdir()) and list(tmp_path.iterdir())
