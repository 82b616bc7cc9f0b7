import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace

import tyro

from cta.agents import find
from cta.cli.evaluate import film
from cta.cli.options import parse_seeds
from cta.cli.scores import order_line, print_orders, print_scores
from cta.config import Extraction, RunConfig, to_dict
from cta.errors import CtaError
from cta.exit_codes import DONE, INTERRUPTED, SEED_STOPPED
from cta.experiment import Interrupted, Run, run_config, start
from cta.experiment.run_dir import read_config
from cta.io.files import user_path

DESCRIPTION = """\
Train an agent, log and checkpoint it, and score it on the way.

The defaults shown are the paper's for this --agent and --dataset; every one can be changed, the agent's own as
--agent.FIELD. OGBench's flag names (--env_name, --train_steps, --save_interval, --agent.low_alpha=3.0) work too.

  cta train --dataset desk-play-v0                                   a small world, minutes on a laptop
  cta train --dataset scene-play-v0 --agent cta --seeds 8            the paper's settings
  cta train --dataset my.npz --steps 50000 --agent.subgoal-steps 15  your own trajectories
  cta train --dataset my.npz --size small                            small networks, for a CPU
  cta train --dataset scene-play-v0 --print-config > mine.json       show all settings as JSON and stop
  cta train --config mine.json --seeds 4                             those settings; what else is typed changes them
"""

FIRST = argparse.ArgumentParser("cta train", "cta train [options]", add_help=False, allow_abbrev=False)
"""Flags that are read before the settings."""
for _flags in (["--config"], ["--agent"], ["--dataset", "--env-name"]):
    FIRST.add_argument(*_flags)
FOREIGN = argparse.ArgumentParser("cta train", "cta train [options]", add_help=False, allow_abbrev=False)
"""Flags that become others, or have no counterpart."""
for _flag in ("--seeds", "--seed", "--restore-path", "--restore-epoch"):
    FOREIGN.add_argument(_flag)
FOREIGN.add_argument("--eval-on-cpu", "--no-eval-on-cpu", nargs="?", const="")


def main(argv: list[str]) -> int:
    config = parse([word for word in argv if word != "--print-config"])
    config.check()
    if "--print-config" in argv:
        print(json.dumps(to_dict(config), indent=2))
        return DONE
    return conclude("train", lambda: start(config))


def conclude(command: str, go: Callable[[], Run]) -> int:
    """Run a training command to its end, a summary, or to a line that says how to continue."""
    try:
        run = go()
    except Interrupted as stop:
        with contextlib.suppress(OSError):
            print(f"cta {command}: {stop}", file=sys.stderr)
        return INTERRUPTED
    rows = run.evaluations()
    if not rows and (orders := run.offline()):
        print_orders([order_line(orders, str(run.path))])
    else:
        print_scores(rows, run)
    print(f"run directory: {run.path}")
    if rows:
        print(f"a page with curves and rollouts: cta report {shlex.quote(str(run.path))}")
    if run.config.videos:
        try:
            run.tell_simulator()
            film(run.policy(), run.config, run.files.videos, episodes=run.config.videos)
        except CtaError as error:
            print(f"no videos: {error}", file=sys.stderr)
    stopped = run.stopped()
    for why in stopped.values():
        print(f"cta {command}: {why}", file=sys.stderr)
    return SEED_STOPPED if stopped else DONE


def parse(argv: list[str]) -> RunConfig:
    """The preset of --agent and --dataset, or the settings in --config, changed by every other flag."""
    given, argv = FIRST.parse_known_args(translate(argv))

    def parsed(default: RunConfig) -> RunConfig:
        return tyro.cli(RunConfig, default=default, args=argv, prog="cta train", description=DESCRIPTION)

    if given.config is not None:
        config = read_config(user_path(given.config), code=find(given.agent).name if given.agent else "")
        return parsed(replace(config, dataset=given.dataset or config.dataset))
    preset = given.agent or "cta", given.dataset or "desk-play-v0"
    usual = run_config(*preset)
    typed = parsed(usual)
    # Some defaults follow what was typed; what was typed itself stays.
    loss = {"actor_loss": typed.agent.actor_loss} if isinstance(typed.agent, Extraction) else {}
    steps = {"steps": typed.steps} if typed.steps != usual.steps else {}
    return parsed(run_config(*preset, agent_settings=loss, size=typed.size, **steps))


def translate(argv: list[str]) -> list[str]:
    """Our shorthands and OGBench's habits, as the parser knows them: seeds become a list, `--x=False` `--no-x`."""
    words: list[str] = []
    for word in argv:
        flag, *value = word.split("=", 1) if word.startswith("--") else [word]
        flag = flag.replace("_", "-") if word.startswith("--") else word
        if value == ["False"]:
            block, dot, name = flag.removeprefix("--").rpartition(".")
            words.append(f"--{block}{dot}no-{name}")
        else:
            words += [flag] if value == ["True"] else [flag, *value]
    given, words = FOREIGN.parse_known_args(words)
    if given.restore_path is not None or given.restore_epoch is not None:
        raise CtaError("--restore_path: `cta resume RUN` continues a run, with its optimiser, logs and random streams")
    if given.eval_on_cpu is not None:
        print("note: --eval_on_cpu has no effect, policies are always evaluated on the CPU", file=sys.stderr)
    if given.seeds is None and given.seed is None:
        return words
    seeds = parse_seeds(given.seed, alone=True) if given.seeds is None else parse_seeds(given.seeds)
    return [*words, "--seeds", *map(str, seeds)]
