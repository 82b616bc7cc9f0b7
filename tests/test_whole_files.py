"""A file that cannot be written to its end leaves what was there before, and nothing beside it."""

import os

import pytest

from cta.bench import record
from cta.errors import CtaError
from cta.evaluation.picture import picture
from cta.reproduce import rehearsal
from cta.reproduce.plan import DataSize, PlannedCell
from cta.theory.figures import draw_lights


def bench_record(folder):
    record.write(folder / "record.json", [], {"device": "cpu", "backend": "cpu", "cpu": "", "cores": 2})


def picture_of_a_run(folder):
    row = {"seed": 0, "step": 1, "task": 1, "episodes": 2, "successes": 1}
    picture(folder / "run.png", [row], dataset_name="scene-play-v0")


def figure_of_the_theory(folder):
    draw_lights(folder)


def random_rows(folder):
    cell = PlannedCell("puzzle-4x4-play-v0", "gcbc", (0,), 10, (10,), data=DataSize(episodes=1, episode_steps=5))
    rehearsal._write(cell, folder / "rows.npz")


@pytest.mark.parametrize("write", [bench_record, picture_of_a_run, figure_of_the_theory, random_rows])
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
