"""A name from outside becomes a file name inside the folder it is meant for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cta.io.files import LONGEST, safe_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("scene-play-v0", "scene-play-v0"),
        ("helper:Agent", "helper-Agent"),
        ("../../escaped", "escaped"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("\x1b[31mred\x00", "31mred"),
        ("trunk.rank=4;lr=0.001", "trunk.rank=4-lr=0.001"),
    ],
)
def test_names(text, name):
    assert safe_name(text) == name


@given(st.text())
def test_no_name_leaves_its_folder(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    name = safe_name(text)
    assert (folder / name).resolve().parent == folder.resolve() and 0 < len(name) <= LONGEST
