"""The exceptions the command line turns into a single readable line."""


class CtaError(Exception):
    """Something the user can fix. The message is one line: what is wrong, where, and what to do."""

    def __str__(self) -> str:
        """One line of printable characters, whatever the message quotes from a file or a command line."""
        text = " ".join(super().__str__().split())
        return "".join(character if character.isprintable() else "�" for character in text)


class RunStopped(CtaError):
    """A run ends before its last step, or unscored; the message already says what continues it."""
