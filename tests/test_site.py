"""The documentation as a site: it builds without a warning, its tutorial runs, and what it says of files is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

import cta
from cta.cli import commands
from cta.envs import datasets, desk, generate, names
from cta.evaluation import evaluator
from cta.scores.paper import TABLES

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly, without executing the tutorial."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    quick = {**os.environ, "CTA_SITE_QUICK": "1", "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True)
    assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr
    return out


def test_every_command_is_on_the_site(site):
    page = (site / "commands.html").read_text()
    for name in commands():
        assert f"usage: cta {name}" in page, name
    assert "--agent.subgoal-steps" in page and "usage: cta ooc study" in page


def test_the_python_reference_has_the_public_names(site):
    page = (site / "api.html").read_text()
    for name in set(cta.__all__) - {"__version__"}:
        assert f'id="cta.{name}"' in page, name
    assert "Train an agent and return its run." in page and "subgoal_steps" not in page.split("RunConfig")[0]


def test_links_to_the_repository_lead_to_copies(site):
    assert 'href="repository/docs/measurements/ooc-desk/index.html"' in (site / "ooc.html").read_text()
    assert (site / "repository/benchmarks/train-cpu.json").read_bytes() == (
        ROOT / "benchmarks/train-cpu.json"
    ).read_bytes()
    assert 'href="tutorial.html"' in (site / "index.html").read_text()
    assert (site / "repository/SECURITY.html").exists() and "1. The recording" in (site / "tutorial.html").read_text()


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert not re.search(r"""<(script|link|img)[^>]+(src|href)=["']?https?://""", page.read_text()), page.name


def test_the_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DEFAULT_PRNG_IMPL", "unsafe_rbg")  # compiling would take most of the time
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "results are made when the site is built"
    quick = {"300, 4_000": "20, 4", 'agent="cta", steps': 'agent="gcivl-analogy", steps', '"subgoal_steps": 10': ""}
    for cell in notebook.cells:
        for slow, fast in quick.items():
            cell.source = cell.source.replace(slow, fast)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    # Progress: one bar, written again in its place, and plain lines that are no errors.
    shown = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    assert sum("4/4" in text for text in shown) == 1
    said = [output.text for output in outputs if output.output_type == "stream"]
    assert any("compiling" in text for text in said) and not any("\x1b" in text for text in (*said, *shown))


def test_the_new_world_works(tmp_path, monkeypatch):
    """The four edits of docs/new-world.md, with its own example."""
    page = (ROOT / "docs/new-world.md").read_text()
    made = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], made)
    world = made["box"]
    monkeypatch.setitem(desk.WORLDS, world.name, world)
    monkeypatch.setitem(names.KNOWN, world.dataset_name, names.DatasetSpec(world.dataset_name, 4, 30))
    for module in (names, datasets, generate, evaluator):
        monkeypatch.setattr(module, "DESK_DATASETS", (*names.DESK_DATASETS, world.dataset_name))
    monkeypatch.setattr("cta.presets.SMALL_WORLDS", "desk-* lights-3x3-* box-*")
    small = {"hidden": (8,), "batch_size": 8}
    run = cta.train(world.dataset_name, agent="gcbc", steps=4, agent_settings=small, dataset_dir=tmp_path / "data",
                    eval_interval=4, eval_episodes=2, run_dir=tmp_path / "run")  # fmt: skip
    assert {row.task for row in run.evaluations()} == {"1", "2", "3", "4", "5"}
    for file in re.findall(r"^\| `(src/[^`]+)` \|", page, re.M):
        assert (ROOT / file).exists(), file


def test_the_container_installs_what_make_installs():
    """No image is built here: its commands are compared with the Makefile's."""
    text = (ROOT / "Dockerfile").read_text()
    target = re.search(r"^RUN make (\S+)$", text, re.M)[1]
    assert target == ".venv/.small" and "VENV ?= .venv" in MAKEFILE and "SMALL = $(VENV)/.small" in MAKEFILE
    assert (
        re.search(r"^demo: \$\(SMALL\)", MAKEFILE, re.M)
        and 'ENTRYPOINT ["/cta/.venv/bin/cta"]' in text
        and "WORKDIR /cta\n" in text
    )
    version = tuple(map(int, re.search(r"^FROM python:(3\.\d+)", text, re.M)[1].split(".")))
    low, high = re.search(r"\(3, (\d+)\) <= sys.version_info < \(3, (\d+)\)", MAKEFILE).groups()
    assert int(low) <= version[1] < int(high)
    libraries = set(re.search(r"--no-install-recommends (.*?) &&", text)[1].split()) - {"make"}
    assert libraries <= set(re.search(r"apt-get install -y --no-install-recommends (.*)", MAKEFILE)[1].split())


@pytest.mark.parametrize("name", ["bug", "result", "wish"])
def test_issue_templates_are_forms(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert form["name"] and form["description"] and form["body"]
    for part in form["body"]:
        assert part["type"] in ("input", "textarea") and part["id"] and part["attributes"]["label"]


def test_the_map_of_the_paper_names_every_table():
    page = (ROOT / "docs/paper.md").read_text()
    for table in TABLES:
        assert f"`cta table {table}`" in page, table
    for file in re.findall(r"`(plans/[^`]+|src/cta/[^`]+|packages/[^`]+)`", page):
        assert (ROOT / file).exists(), file
