"""Run a command line: parse, dispatch, and tell errors in one line."""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from .arguments import parse
from .errors import OF_USERS, UserError
from .launch import is_one_of_several, leave


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `nnfactor`.

    Parameters
    ----------
    argv : sequence of str, optional
        Words after the name of the command; None: those of the process.

    Returns
    -------
    int
        Exit status: 0 only after success, 2 for a command line or a file that the user can mend, 1 for a failure, 130
        after Ctrl-C. An error is one line on standard error; `--debug` shows the traceback.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments, parameters, parser = parse(argv)
        arguments.argv = argv
        if getattr(arguments, "help", False):
            from .describe import print_help  # the help of a named model needs torch, that of a verb does not

            print_help(arguments, parser)
            return 0
        verb = "fit" if arguments.verb == "select-rank" else arguments.verb  # both are one way
        run = import_module(f".verbs.{verb}", __package__).run
        return int(run(arguments, parameters) or 0)
    except SystemExit as end:  # help and version of argparse
        return int(end.code or 0)
    except KeyboardInterrupt as error:
        return _tell("nnfactor: interrupted; the same command goes on with what is written", 130, error)
    except BrokenPipeError:  # `nnfactor info X | head`
        sys.stderr.close()
        return 0
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        told = " ".join(str(error).split()) or type(error).__name__
        kind = "" if isinstance(error, OF_USERS) or hasattr(error, "ranks") else f"{type(error).__name__}: "
        if isinstance(error, OF_USERS) and not isinstance(error, UserError):  # of the package, which speaks Python
            told = import_module(".describe", __package__).told_in_options(told)
        return _tell(f"nnfactor: error: {kind}{told}", 2 if isinstance(error, OF_USERS) else 1, error)


def _tell(line: str, status: int, error: BaseException) -> int:
    """Print what ended the run; of several processes one does so for all."""
    if is_one_of_several():
        leave(line, status, error)
    print(line, file=sys.stderr)
    return status
