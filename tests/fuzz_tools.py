"""What the fuzz tests share: damage of all kinds, and the rule that only clear errors may come of it.

CTA_FUZZ_EXAMPLES=3000 makes a long run of them, CTA_FUZZ_REPORT=file counts the kinds of errors it met.
"""

import json
import os
import re
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cta.errors import CtaError

EXAMPLES = int(os.environ.get("CTA_FUZZ_EXAMPLES", "40"))
CPU_SECONDS = 60
SEEN: dict[str, Counter] = {}


def fuzz(examples: int = EXAMPLES):
    """Settings of a fuzz test; the time of an example depends on the machine's other work, so there is no deadline."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, database=None)


@contextmanager
def only_clear_errors(target: str, *folders: Path):
    """Anything but success and a CtaError of one line fails, and so do a minute of computing and a new file."""
    before = [listing(folder) for folder in folders]

    def hang(*_):
        raise AssertionError(f"{target}: no end in {CPU_SECONDS} s of computing")

    old = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    kind = "accepted"
    try:
        yield
    except CtaError as error:
        assert "\n" not in str(error) and str(error).strip(), repr(str(error))
        kind = kind_of(str(error))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
    assert [listing(folder) for folder in folders] == before, "something was written"
    count(target, kind)


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
