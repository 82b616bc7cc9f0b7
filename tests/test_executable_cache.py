"""A program kept on disk is the program, is found again, and is never taken for another."""

import os
import stat
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from cta import cli, compilation, plugins
from cta.agents import find
from cta.envs.desk_play import generate_play
from cta.presets import agent_preset
from cta.training import executable_cache, seeds
from cta.training.executable_cache import KeptProgram, fingerprint
from cta.training.learner import Learner, spec_of, to_device
from cta.training.seeds import SeedGroup

ACCELERATED = jax.default_backend() != "cpu"
CHUNK = 2
TRAIN = generate_play("desk", episodes=5, validation_episodes=1, episode_steps=60, seed=0)[0]
ENTRY = find("gcbc")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Programs are kept here, and a chunk is short."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilation, "_keeping", True)
    monkeypatch.setattr(plugins, "loaded", [])
    monkeypatch.setattr(seeds, "CHUNK", CHUNK)
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", ACCELERATED)
    reset_cache()  # it looks at its settings once
    yield tmp_path / "programs"
    jax.config.update("jax_enable_compilation_cache", before)
    reset_cache()


def trained(traces, *, lr=3e-4, interrupted=False):
    """Two seeds after two chunks; `traces` grows each time their program is traced."""

    class Counting(Learner):
        def run(self, *arguments, **options):
            traces.append(arguments)
            return super().run(*arguments, **options)

    config = replace(agent_preset(ENTRY.config, "desk-play-v0"), batch_size=16, hidden=(32,), lr=lr)
    learner = Counting(ENTRY.build(config), spec_of(TRAIN), block=8)
    group = SeedGroup(learner, [0, 3], to_device(TRAIN), stacked=True)
    group.run(CHUNK)
    if interrupted:
        before, group = group.snapshot(), SeedGroup(learner, [0, 3], to_device(TRAIN), stacked=True)
        group.restore(before)
    group.run(CHUNK)
    return group.snapshot()


def same(one, two):
    return jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), one, two))


def test_a_second_start_reads_the_program_and_gives_the_same_numbers(folder, monkeypatch):
    first, second, other, never = [], [], [], []
    one = trained(first)
    assert len(first) == 1 and len(os.listdir(folder)) == 1
    assert same(one, trained(second)) and not second
    assert same(one, trained(second, interrupted=True)) and not second
    assert not same(one, trained(other, lr=1e-5)) and other and len(os.listdir(folder)) == 2
    monkeypatch.setattr(compilation, "_keeping", False)
    assert same(one, trained(never)) and never


@pytest.mark.skipif(not ACCELERATED, reason="programs of whole chunks are for accelerators")
def test_a_program_that_came_from_the_cache_of_jax_is_kept_as_well(folder):
    compilation.enable_cache()
    traces = []
    one = trained(traces)
    (path,) = folder.iterdir()
    path.unlink()
    jax.clear_caches()
    assert same(one, trained(traces)) and len(traces) == 2  # traced, then read from JAX's cache
    assert same(one, trained(traces)) and len(traces) == 2  # read from here


@pytest.mark.skipif(ACCELERATED, reason="an accelerator's programs can be written again")
def test_on_a_cpu_no_program_is_kept_that_may_have_come_from_the_cache_of_jax(folder):
    """It would be incomplete: "Function … not found" at the second start."""
    jax.config.update("jax_enable_compilation_cache", True)
    traces = []
    one = trained(traces)
    assert same(one, trained(traces)) and len(traces) == 2 and not folder.exists()


def doubled(traces, recipe="double"):
    """Twice a vector, by a program that is kept."""

    def double(x):
        traces.append(x)
        return 2 * x

    return KeptProgram(jax.jit(double), recipe)(jnp.arange(3.0)).tolist()


def test_a_damaged_program_is_compiled_anew_and_replaced(folder):
    traces = []
    assert doubled(traces) == doubled(traces) == [0, 2, 4] and len(traces) == 1
    (path,) = folder.iterdir()
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[: whole // 2])
    assert doubled(traces) == [0, 2, 4] and len(traces) == 2
    assert doubled(traces) == [0, 2, 4] and len(traces) == 2
    assert len(os.listdir(folder)) == 1


def test_a_folder_that_cannot_be_written_costs_only_the_speed(folder):
    folder.write_text("a file is in the way")
    assert doubled([]) == [0, 2, 4]


def test_the_folder_is_the_users_own(folder):
    mask = os.umask(0)
    try:
        assert doubled([]) == [0, 2, 4]
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("whose", ["others", "group", "somebody"])
def test_programs_that_others_could_have_written_are_compiled_instead(folder, monkeypatch, whose):
    traces = []
    assert doubled(traces) == doubled(traces) == [0, 2, 4] and len(traces) == 1
    if whose == "somebody":
        monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    else:
        folder.chmod({"others": 0o702, "group": 0o720}[whose])
    assert doubled(traces) == [0, 2, 4] and len(traces) == 2
    assert doubled(traces, "another") == [0, 2, 4] and len(os.listdir(folder)) == 1


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert doubled([]) == [0, 2, 4] and not os.listdir(folder)


def test_nothing_is_kept_in_a_notebook_or_beside_code_of_ones_own(folder, monkeypatch):
    monkeypatch.setattr(plugins, "loaded", ["mine:agent"])
    assert doubled([]) == [0, 2, 4]
    monkeypatch.setattr(plugins, "loaded", [])
    monkeypatch.setattr(compilation, "_keeping", False)
    assert doubled([]) == [0, 2, 4] and not folder.exists()


def test_code_of_ones_own_is_noticed(folder):
    plugins.load_plugin("json:dumps", flag="--agent")
    assert doubled([]) == [0, 2, 4] and not folder.exists()


def test_commands_keep_programs(monkeypatch):
    monkeypatch.setattr(compilation, "_keeping", False)
    monkeypatch.setattr(sys, "argv", ["cta", "--version"])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit):
        cli.main()
    assert compilation.programs_folder() is not None


def test_options_of_the_compiler_are_part_of_a_recipe():
    learner, data = Learner(ENTRY.build(ENTRY.config), spec_of(TRAIN), block=8), to_device(TRAIN)
    plain, graph = (seeds._Resident(learner, data, True, options) for options in (None, {"graph": "yes"}))
    assert plain._run_chunk._recipe != graph._run_chunk._recipe


def test_the_oldest_programs_go(folder, monkeypatch):
    monkeypatch.setattr(executable_cache, "MOST", 2)
    for number in range(4):
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}
        doubled([], f"recipe {number}")
        for path in folder.iterdir():
            if path not in before:
                os.utime(path, (number, number))
    assert sorted(path.stat().st_mtime for path in folder.iterdir()) == [2, 3]


def test_a_fingerprint_is_of_source_shapes_settings_and_recipe_and_nothing_else(monkeypatch, tmp_path):
    ones = (jnp.ones(3),)
    plain = fingerprint("recipe", ones)
    call = "fingerprint('recipe', (jax.numpy.ones(3),))"
    code = f"import jax; from cta.training.executable_cache import fingerprint; print({call})"
    call = [sys.executable, "-c", code]
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip() == plain
    seen = {plain, fingerprint("other", ones), fingerprint("recipe", (jnp.ones(4),))}
    seen.add(fingerprint("recipe", (jnp.ones(3, int),)))
    with monkeypatch.context() as patch:
        patch.setenv("XLA_SOMETHING", "1")
        seen.add(fingerprint("recipe", ones))
    with jax.default_matmul_precision("highest"):
        seen.add(fingerprint("recipe", ones))
    monkeypatch.setattr(executable_cache, "PACKAGE", tmp_path)
    for text in ("x = 1", "x = 2"):
        (tmp_path / "a.py").write_text(text)
        seen.add(fingerprint("recipe", ones))
    assert len(seen) == 8
