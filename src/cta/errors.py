"""The one exception the command line turns into a single readable line."""


class CtaError(Exception):
    """Something the user can fix. The message is one line: what is wrong, where, and what to do."""
