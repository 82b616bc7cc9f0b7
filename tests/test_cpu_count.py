"""How many processes are started, and how they give way."""

import os

import pytest

from cta.cpu_count import cpu_count
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.handle import LOW_PRIORITY, Worker


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 64), ("250000 100000", 3), ("50000 100000", 1), ("nonsense", 64), (None, 64)]
)
def test_a_container_s_share_counts(tmp_path, monkeypatch, limit, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    if limit is not None:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert cpu_count(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, 64), (400000, 4)])
def test_older_containers(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_count(tmp_path) == cores


@pytest.mark.parametrize(("available", "alone", "beside"), [(1, 1, 1), (2, 2, 1), (8, 8, 7), (40, 16, 16)])
def test_beside_training_a_core_stays_free(monkeypatch, available, alone, beside):
    monkeypatch.setattr("cta.evaluation.evaluator.cpu_count", lambda: available)
    sizes = []
    for beside_training in (False, True):
        evaluator = Evaluator("pointmaze-medium-navigate-v0", beside_training=beside_training)
        sizes.append(evaluator.workers)
    assert sizes == [alone, beside]


def test_workers_beside_training_have_low_priority():
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for give_way in (False, True):
        worker = Worker("pointmaze-medium-v0", limit=1, timeout=1.0, allowed=0, give_way=give_way)
        priority = os.getpriority(os.PRIO_PROCESS, worker.pid)
        worker.close()
        assert priority == (max(own, LOW_PRIORITY) if give_way else own)
