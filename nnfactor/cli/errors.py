"""What a command line can do wrong, and how it is told: one line."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can mend: a name, a file, a value. The exit status is 2."""


# Errors of values that the user gave; whatever else goes wrong is a failure of the run.
OF_USERS = (UserError, ValueError, TypeError, ImportError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is most like another one: `; did you mean X?`, or nothing."""
    lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    best = sorted(close, key=lambda k: (sorted(k) != sorted(name.lower()), close.index(k)))  # swapped letters first
    return f"; did you mean {lower[best[0]]}?" if best else ""
