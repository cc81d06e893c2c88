"""What a command line can do wrong, and how it is told: one line."""

import difflib
import re
from collections.abc import Collection, Iterable


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


OPTIONS = {"n_components": "-k", "random_state": "--seed", "y": "--labels", "column": "--labels FILE:COLUMN"}

SWITCHES = ("header", "row_names", "long", "transpose")  # options without a value

# A name with a value, or a name alone that is no word of a sentence: `tol must be ...`, `fixed['U1']`, `max_iter`.
NAMED = re.compile(
    r"""(?<![\w.'"`-])(?P<name>[A-Za-z]\w*)
        (?: =(?P<value> '[^']*' | "[^"]*" | [({\[][^)}\]]*[)}\]] | -?[\w.]+\b | (?=\W)(?!=) )
          | (?P<alone>(?![\w=.(])) )""",
    re.VERBOSE,
)

OBJECT = re.compile(r"; raise (\w+ or )?\Z")  # what stands behind is to be raised: `; raise max_iter or tol`

QUOTES = "\"'"


def in_options(text: str, names: Collection[str]) -> str:
    """Name options in a message that speaks of parameters in Python: `missing='nan'` is `--missing nan`.

    >>> in_options("tol=-1 needs missing='nan', header=False; raise max_iter or tol", {"missing", "max_iter", "tol"})
    '--tol -1 needs --missing nan, --no-header; raise --max-iter or --tol'
    """

    def translated(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if name not in names and name not in OPTIONS and name not in SWITCHES:
            return match[0]
        rest = text[match.end() :]
        is_subject = match.start() == 0 or rest.startswith((" must ", "["))
        is_object = OBJECT.search(text, 0, match.start()) is not None
        if value is None and not (is_subject or is_object or "_" in name or name == "y"):
            return match[0]  # a word of the sentence
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if name in SWITCHES:
            return option.replace("--", "--no-") if value == "False" else option
        if not value:
            return option
        return f"{option} {value[1:-1] if value[0] in QUOTES and ' ' not in value else value}"

    return NAMED.sub(translated, text)
