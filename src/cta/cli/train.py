"""cta train"""

import json
import re
import sys
from dataclasses import replace

import tyro

from cta.config import Extraction, RunConfig, to_dict
from cta.errors import CtaError
from cta.exit_codes import DONE
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

exit codes: 0 done, 1 error, 2 wrong usage, 3 interrupted and resumable, 4 done, but a seed diverged (NaN or inf)
"""

MOST_SEEDS = 1024


def main(argv: list[str]) -> int:
    config = parse([word for word in argv if word != "--print-config"])
    config.check()
    if "--print-config" in argv:
        print(json.dumps(to_dict(config), indent=2))
        return DONE
    from cta import experiment
    from cta.cli.summary import conclude

    return conclude("train", lambda: experiment.start(config))


def parse(argv: list[str]) -> RunConfig:
    """The preset of --agent and --dataset, or the settings in --config, changed by every other flag."""
    from cta.experiment import run_config

    argv = translate(argv)
    file = _value(argv, "--config")
    if file is not None:
        at = argv.index("--config")
        del argv[at : at + 2]
    agent, dataset = _value(argv, "--agent") or "cta", _value(argv, "--dataset", "--env-name") or "desk-play-v0"

    def parsed(default: RunConfig) -> RunConfig:
        config = tyro.cli(RunConfig, default=default, args=argv, prog="cta train", description=DESCRIPTION)
        return replace(config, agent_name=default.agent_name)

    if file is not None:
        from cta.agents import find
        from cta.experiment.run_dir import read_config

        named = _value(argv, "--agent")
        return parsed(read_config(user_path(file), code=find(named).name if named else ""))
    usual = run_config(agent, dataset)
    typed = parsed(usual)
    # Some defaults follow what was typed; what was typed itself stays.
    loss = {"actor_loss": typed.agent.actor_loss} if isinstance(typed.agent, Extraction) else {}
    steps = {"steps": typed.steps} if typed.steps != usual.steps else {}
    return parsed(run_config(agent, dataset, agent_settings=loss, size=typed.size, **steps))


def translate(argv: list[str]) -> list[str]:
    """Our shorthands and OGBench's habits, in the form the parser knows.

    `--seeds 8` becomes 0…7, `--seeds 0,3,5` a list, `--seed 3` one seed; `--x=False` becomes `--no-x`.
    """
    words: list[str] = []
    for word in argv:
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = flag.replace("_", "-") if word.startswith("--") else word
        if value in ("True", "False"):
            stem, dot, name = flag.rpartition(".") if "." in flag else ("--", "", flag[2:])
            words.append(flag if value == "True" else f"{stem}{dot}no-{name}")
        else:
            words += [flag, value] if equals else [flag]
    words = _drop_foreign(words)
    for flag in ("--seeds", "--seed"):
        if flag in words[:-1]:
            at = words.index(flag)
            seeds = parse_seeds(words[at + 1], alone=flag == "--seed")
            return [*words[:at], "--seeds", *map(str, seeds), *words[at + 2 :]]
    return words


def _drop_foreign(words: list[str]) -> list[str]:
    """OGBench flags that have no counterpart, with a line that says why."""
    if "--restore-path" in words or "--restore-epoch" in words:
        raise CtaError("--restore_path: `cta resume RUN` continues a run, with its optimiser, logs and random streams")
    at = next((i for i, word in enumerate(words) if word in ("--eval-on-cpu", "--no-eval-on-cpu")), None)
    if at is None:
        return words
    print("note: --eval_on_cpu has no effect, policies are always evaluated on the CPU", file=sys.stderr)
    has_value = at + 1 < len(words) and not words[at + 1].startswith("--")
    return words[:at] + words[at + 1 + has_value :]


def parse_seeds(text: str, *, alone: bool = False) -> tuple[int, ...]:
    """`8` → 0…7 (a single seed if `alone`); `0,3,5` → those; `3,` → 3 alone."""
    if not re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        raise CtaError(f"--seeds {text}: give a count (8), a list (0,3,5) or one seed with a comma (3,)")
    numbers = tuple(int(number) for number in text.split(",") if number)
    if "," in text or alone:
        return numbers
    if numbers[0] == 0:
        raise CtaError("--seeds 0: a count of at least 1, or `0,` for seed 0 alone")
    if numbers[0] > MOST_SEEDS:
        raise CtaError(f"--seeds {text}: at most {MOST_SEEDS} train together; one seed of this number is `{text},`")
    return tuple(range(numbers[0]))


def _value(words: list[str], *flags: str) -> str | None:
    """What follows the first of these flags."""
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word in flags), None)
