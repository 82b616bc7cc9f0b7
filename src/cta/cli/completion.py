"""cta completion, and the help of all commands, which it is made from."""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cta.cli import commands, load, run
from cta.errors import CtaError

SCRIPT = """\
# Completion of `cta` for bash and zsh, printed by `cta completion`.
if [ -n "$ZSH_VERSION" ]; then
  type compdef > /dev/null 2>&1 || {{ autoload -U +X compinit && compinit -u; }}
  autoload -U +X bashcompinit && bashcompinit
fi
_cta() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
  esac
  [ "$COMP_CWORD" = 1 ] && words={commands}
  case "$before" in
    --agent) words={agents} ;;
    --dataset) words={datasets} ;;
    --*) [[ $word == -* ]] || words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _cta cta
"""


@dataclass(frozen=True)
class Command:
    """Print a script that completes commands, options, agents and datasets in bash and zsh.

    cta completion > ~/.cta-completion
    echo 'source ~/.cta-completion' >> ~/.bashrc      or ~/.zshrc
    """

    def __call__(self) -> None:
        from cta.agents import REGISTRY
        from cta.envs.names import KNOWN

        pages = dict(help_pages())
        cases = []
        for words in sorted(pages, key=len, reverse=True):  # the first pattern that fits counts
            options = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]", pages[words])))
            seconds = [other[1] for other in pages if len(other) == 2 and other[:1] == words]
            pattern = f"'{words[0]} '*" if len(words) == 1 else f"'{' '.join(words)}'"
            cases.append(f"    {pattern}) words={shlex.quote(' '.join(seconds + options))} ;;")
        lists = {"commands": dict.fromkeys(words[0] for words in pages), "agents": REGISTRY, "datasets": KNOWN}
        known = {name: shlex.quote(" ".join(words)) for name, words in lists.items()}
        print(SCRIPT.format(cases="\n".join(cases), **known), end="")


def help_pages() -> Iterator[tuple[tuple[str, ...], str]]:
    """(words of a command, what `cta WORDS --help` prints), for every command and its subcommands."""
    for name in commands():
        try:
            seconds = getattr(load(name), "COMMANDS", ())
        except CtaError as error:  # an installed command, which must not take the others with it
            print(f"notice: {error}", file=sys.stderr)
            continue
        for words in ((name,), *((name, second) for second in seconds)):
            with contextlib.redirect_stdout(io.StringIO()) as page:
                run([*words, "--help"])
            yield words, page.getvalue()
