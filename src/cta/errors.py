"""The exceptions the command line turns into a single readable line."""

import sys
from collections.abc import Collection
from difflib import get_close_matches
from importlib.util import find_spec


class CtaError(Exception):
    """Something the user can fix. The message is one line: what is wrong, where, and what to do."""

    def __str__(self) -> str:
        """One line of printable characters, whatever the message quotes from a file or a command line."""
        text = " ".join(super().__str__().split())
        return "".join(character if character.isprintable() else "�" for character in text)


class RunStopped(CtaError):
    """A run ends before its last step, or unscored; the message already says what continues it."""


def did_you_mean(word: str, known: Collection[str], otherwise: str, *, form: str = "{}", most: int = 3) -> str:
    """Asks for known words that are near to what was typed, or have it in them; `otherwise` if there are none."""
    near = get_close_matches(word, known, n=most) or [one for one in known if word in one][:most]
    return f"did you mean {' or '.join(map(form.format, near))}?" if near else otherwise


def need_extra(extra: str, package: str, what: str) -> None:
    """Before the import of a package that only an extra of this one brings: if it is not here, how to get it."""
    if sys.modules.get(package) is None and find_spec(package) is None:
        raise CtaError(f"{what} needs the {package} package: pip install 'cta[{extra}]'")
