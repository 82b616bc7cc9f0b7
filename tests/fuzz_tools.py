"""What the fuzz tests share: damage of all kinds, and the rule that only clear errors may come of it.

CTA_FUZZ_EXAMPLES=3000 makes a long run of them, CTA_FUZZ_REPORT=file counts the kinds of errors it met.
"""

import contextlib
import io
import json
import os
import re
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cta.cli import run
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.experiment import Run, run_config
from cta.experiment.run_dir import RunDir
from cta.training.checkpoints import Checkpoints
from cta.training.learner import Learner, spec_of
from cta.training.seeds import SeedGroup, open_source

EXAMPLES = int(os.environ.get("CTA_FUZZ_EXAMPLES", "40"))
CPU_SECONDS = 60
TERMINAL = {*map(chr, range(32)), *map(chr, range(127, 160))} - {"\n", "\t"}
"""What a terminal acts on; commands in a test have none, so colours are no excuse."""
SEEN: dict[str, Counter] = {}


def fuzz(examples: int = EXAMPLES):
    """Settings of a fuzz test; the time of an example depends on the machine's other work, so there is no deadline."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, database=None)


@contextmanager
def only_clear_errors(target: str, *folders: Path):
    """Anything but success and a CtaError of one line fails, and so do a minute of computing and a new file."""
    before = [listing(folder) for folder in folders]
    kind = "accepted"
    try:
        with no_hang(target):
            yield
    except CtaError as error:
        assert "\n" not in str(error) and str(error).strip(), repr(str(error))
        kind = kind_of(str(error))
    assert [listing(folder) for folder in folders] == before, "something was written"
    count(target, kind)


@contextmanager
def no_hang(target: str):
    """A minute of computing fails."""

    def hang(*_):
        raise AssertionError(f"{target}: no end in {CPU_SECONDS} s of computing")

    old = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)


def command(target: str, words: list[str], *folders: Path, may_write: Path | None = None) -> int:
    """A command line as a person gives it: a known exit code, one line on standard error if it is an error, nothing
    that a terminal would act on, and no new file in `folders` but in `may_write`.
    """
    before = [listing(folder) for folder in folders]
    out, err = io.StringIO(), io.StringIO()
    with no_hang(target), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    said = err.getvalue()
    assert code in (0, 1, 2), code
    assert "Traceback" not in said + out.getvalue() and "internal error" not in said, said
    # Usage quotes the command line, which is not a stranger's.
    assert code == 2 or not set(said + out.getvalue()) & TERMINAL, repr(said + out.getvalue())
    if code == 1:
        lines = [
            line for line in said.splitlines() if not line.startswith(("note:", "notice:", "compiling the policy"))
        ]
        assert lines and lines[-1].startswith(f"cta {words[0]}: "), said
        assert len(lines) == 1, said
    for folder, names in zip(folders, before, strict=True):
        stray = [folder / name for name in set(listing(folder)) - set(names)]
        assert all(may_write and path.is_relative_to(may_write) for path in stray), stray
    count(target, f"exit {code}" if code != 1 else kind_of(said.split(": ", 1)[1]))
    return code


def count(target: str, kind: str) -> None:
    SEEN.setdefault(target, Counter())[kind] += 1
    report = os.environ.get("CTA_FUZZ_REPORT")
    if report and sum(SEEN[target].values()) % 20 == 0:
        Path(f"{report}.{target}").write_text(json.dumps(SEEN[target].most_common(), indent=1, ensure_ascii=False))


def kind_of(text: str) -> str:
    """An error's text without what changes from case to case."""
    text = re.sub(r"(/\S+)+/", "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)|\[[^\]]*\]|[-+.\d]+(e[-+]?\d+)?|\binf\b|\bnan\b", "_", text)
    return " ".join(text.split())[:70]


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Bytes changed in a few places, cut, doubled or replaced."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        way = draw(st.sampled_from(["flip", "flip", "cut", "insert", "remove", "zero", "copy"]))
        at = draw(st.integers(0, max(0, len(data) - 1)))
        size = draw(st.integers(1, 64))
        if way == "flip" and data:
            data[at] ^= draw(st.integers(1, 255))
        elif way == "cut":
            del data[at:]
        elif way == "insert":
            data[at:at] = draw(st.binary(max_size=size))
        elif way == "remove":
            del data[at : at + size]
        elif way == "zero":
            data[at : at + size] = bytes(len(data[at : at + size]))
        else:
            data += data[at : at + size]
    return bytes(data)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=12),
    st.sampled_from(["../../x", "/etc/passwd", "a:b", "os:system", "", "\x00", "nan", "1e999", [[]], {}, [1], "٣"]),
    st.sampled_from(["\x1b[31mred", "[/bold]", "<script>x</script>", "\u202e", "\ud800", "\r", "é" * 300, 99999999999]),
    st.lists(st.integers(-3, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@st.composite
def damaged_json(draw, values: dict) -> str:
    """A JSON object with a few values replaced, removed or added, at any depth."""
    tree = json.loads(json.dumps(values))
    for _ in range(draw(st.integers(1, 3))):
        node = tree
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(node[key], dict | list) and draw(st.booleans()):
                node = node[key]
                continue
            way = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
            if way == "replace":
                node[key] = draw(ODD)
            elif way == "remove":
                del node[key]
            elif isinstance(node, dict):
                node[draw(st.text(max_size=6))] = draw(ODD)
            break
    return json.dumps(tree)


def damage_text(data, path: Path) -> None:
    """A text file changed: a JSON file in its values or its bytes, another in its bytes."""
    if path.suffix == ".json" and data.draw(st.booleans()):
        path.write_text(data.draw(damaged_json(json.loads(path.read_text()))))
    else:
        path.write_bytes(data.draw(damaged(path.read_bytes() or b"step,seed\n1,0\n")))


def make_run(folder: Path) -> Path:
    """A run directory with everything in it, of an agent of a few units that has hardly been trained."""
    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (20, 2)).astype(np.float32)
    data = TrajectoryDataset.from_arrays(rng.normal(size=(20, 3)), acted, episode_lengths=[10, 10], name="mine")
    settings = {"hidden": (4,), "batch_size": 4}
    config = run_config("gcbc", "mine", agent_settings=settings, steps=2, run_dir=str(folder))
    files = RunDir.create(config)
    facts = {"observation_shape": [3], "action_dim": 2, "fingerprint": data.fingerprint()}
    files.record({"dataset": facts, "stopped": {}})
    agent = Run(folder).agent
    group = SeedGroup(Learner(agent, spec_of(data), block=2), [0], open_source(data))
    checkpoints = Checkpoints(files.checkpoints, create=True)
    checkpoints.save(group.snapshot())
    checkpoints.wait()
    checkpoints.close()
    common = {"dataset": "mine", "agent": "gcbc", "condition": "whole", "seed": 0, "step": 2}
    files.eval_log().append([{**common, "task": task, "episodes": 4, "successes": 1} for task in range(1, 6)])
    with (folder / "offline.csv").open("w") as file:
        file.write("dataset,agent,seed,step,episodes,value_order,dual_order\nmine,gcbc,0,2,4,0.5,\n")
    files.release()
    return folder
