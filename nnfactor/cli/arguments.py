"""What may stand in a command line. Nothing here imports torch."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import MODELS
from ..version import VERSION
from .errors import UserError, nearest

ESTIMATORS = tuple(name for name in MODELS if name not in ("LabelledOnly", "MarginalFisher", "nnls"))

CRITERIA = ("auto", "bicross", "speckled", "stability", "core_consistency")

FORMATS = ("cnmf", "csv", "h5ad", "npz")

PARAMETERS = """
Every parameter of the model is an option: --max-iter 500, --solver hals, --alpha 10. Values are numbers, words, lists
such as "(8, 8)", dictionaries such as "{'V': (0, 1)}", penalties such as "{'V': [L1(0.1)]}", and @FILE for an array
that is read from a file. `nnfactor fit --model NGE --help` lists those of NGE.
"""

DESCRIPTIONS = {
    "fit": "Fit a model to data, and write its factors to a result folder.",
    "transform": "Compute coefficients (or classes) of new samples with a fitted model.",
    "select-rank": "Choose the number of components; all ranks go to a result folder.",
    "consensus": "Find which components the restarts of a result folder have in common.",
    "combine": "Join what several workers computed (see --total-workers).",
    "plot": "Draw the pictures of a result folder, and its report.html.",
    "info": "Describe a data file, a model file or a result folder.",
    "export": "Write the factors of a result folder in the names and formats of other tools.",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, of one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise what the command line prints as one line."""
        raise UserError(f"{message}; see {self.prog} --help")


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """Make the parser of the command, and that of every verb."""
    parser = Parser("nnfactor", description="Nonnegative factorization of matrices, tensors and views.")
    parser.add_argument("--version", action="version", version=f"nnfactor {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    made = {}
    for verb, description in DESCRIPTIONS.items():
        takes_model = verb in ("fit", "select-rank")
        one = verbs.add_parser(
            verb, help=description, description=description, add_help=False, epilog=PARAMETERS if takes_model else None
        )
        one.add_argument("-h", "--help", action="store_true", help="show this help")
        one.add_argument("--debug", action="store_true", help="show the traceback of an error")
        ADD[verb](one)
        made[verb] = one
    return parser, made


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str], Parser]:
    """Read a command line: what the verb knows, parameters of the model by name, and the parser of the verb."""
    parser, verbs = make_parser()
    verb = next((word for word in argv if not word.startswith("-")), None)
    if verb is None:
        return parser.parse_args(argv), {}, parser  # help, version, or the error that a verb is missing
    if verb not in verbs:
        raise UserError(f"there is no verb {verb!r}{nearest(verb, verbs)}: use one of {', '.join(verbs)}")
    own = verbs[verb]
    known, parameters = split_parameters(list(argv), own, verb in ("fit", "select-rank"))
    if "-h" in known or "--help" in known:
        found = argparse.Namespace(verb=verb, help=True, debug=False, model=_value_of("--model", known, "NMF"))
        found.named = "--model" in known
        return found, parameters, own
    return _with_files_behind_ranks(parser.parse_args(known)), parameters, own


def _with_files_behind_ranks(words: argparse.Namespace) -> argparse.Namespace:
    """Take files that stand behind the ranks for data: `-k 2:12 my_data.csv`, where argparse sees further ranks."""
    ranks, data = getattr(words, "k", None), getattr(words, "data", None)
    if ranks and data is not None:
        files = [word for word in ranks if "." in word and not word.replace(".", "").isdecimal()]
        words.data, words.k = [*data, *files], [word for word in ranks if word not in files]
    return words


def _value_of(option: str, words: Sequence[str], default: str) -> str:
    at = words.index(option) + 1 if option in words else len(words)
    return words[at] if at < len(words) else default


def split_parameters(argv: Sequence[str], parser: Parser, takes_model: bool) -> tuple[list[str], dict[str, str]]:
    """Split off options that the verb does not know: of `fit` and `select-rank` they are parameters of the model."""
    options = {option: action for action in parser._actions for option in action.option_strings}
    known: list[str] = []
    parameters: dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") or word == "--" or name in options:
            known.append(word)
            continue
        if not takes_model:
            raise UserError(f"{parser.prog} has no option {name}{nearest(name, options)}")
        if not equals:
            value = words.pop(0) if words and not _is_option(words[0], options) else "True"
        parameter = name.removeprefix("--").replace("-", "_")
        if parameter in parameters:
            raise UserError(f"{name} is given twice")
        parameters[parameter] = value
    return known, parameters


def _is_option(word: str, options: dict[str, Any]) -> bool:
    return word.startswith("--") or word in options


def read_ranks(words: Sequence[str]) -> list[int]:
    """Read ranks: numbers, and ranges `low:high` or `low:high:step` that include their end."""
    found: list[int] = []
    for word in words:
        parts = word.split(":")
        if not all(part.isdecimal() for part in parts) or len(parts) > 3:
            raise UserError(f"-k {word}: ranks are whole numbers, or ranges such as 5:12 or 5:20:5")
        low, high, step = [*map(int, parts), *[int(parts[0])] * (len(parts) == 1), *[1] * (len(parts) < 3)]
        if low < 1 or step < 1 or high < low:
            raise UserError(f"-k {word}: ranks are 1 or more, and a range goes from its lower to its higher end")
        found += range(low, high + 1, step)
    return sorted(set(found))


SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def read_size(word: str) -> int:
    """Read a number of bytes: 500000, 500MB (millions), 500MiB (of 2^20 each)."""
    found = SIZE.fullmatch(word.strip())
    if found is None or (found[3] and not found[2]) or float(found[1]) == 0:
        raise UserError(f"--max-bytes {word}: a size is a number with a unit, such as 2GB, 500MiB or 1000000")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " "))


def _add_data(parser: Parser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "data",
        nargs="*",
        metavar="DATA",
        help="data files, samples first: .npy, .npz, .csv, .tsv, .txt, .mtx, .mat, .parquet, .h5, .h5ad, .zarr; "
        "several for models of views, slices or coupled tensors",
    )
    group.add_argument("--key", help="which array of a file with several; a layer of .h5ad")
    group.add_argument(
        "--long", action="store_true", default=None, help="text files list entries: row, column, ..., value"
    )
    for name, what in (
        ("header", "the first line names the columns"),
        ("row-names", "the first column names the rows"),
    ):
        told = f"say whether {what}, where a text file leaves it open"
        group.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None, help=told)
    group.add_argument(
        "--names",
        nargs="+",
        metavar="FILE",
        help="text files with names of rows, of columns, ... of the data file, one name in each line, - for none; "
        "FILE:2 takes the second cell of a line",
    )
    group.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="read the file in blocks of rows that take so much memory at most, as 2GB or 500MiB: .npy, .h5, .h5ad, "
        ".zarr",
    )
    group.add_argument("--transpose", action="store_true", default=None, help="the file has samples as columns")
    group.add_argument(
        "--labels", metavar="WHERE", help="a column of the data file (NAME or obs:NAME), FILE, FILE:COLUMN"
    )
    group.add_argument("--drop-columns", nargs="+", metavar="NAME", help="columns of the data file that are no data")
    group.add_argument("--weights", metavar="FILE", help="a weight for every entry; 0 hides it")


def _add_output(parser: Parser, name: str) -> None:
    group = parser.add_argument_group("results")
    group.add_argument("--output-dir", default=".", metavar="FOLDER", help="where the result folder goes (default: .)")
    group.add_argument("--name", help=f"name of the result folder (default: {name})")
    group.add_argument("--no-plots", action="store_true", default=None, help="write no pictures and no report")
    group.add_argument("-q", "--quiet", action="store_true", default=None, help="print errors only")


def _add_fit(parser: Parser) -> None:
    _add_data(parser)
    group = parser.add_argument_group("model")
    group.add_argument("--model", default=None, help=f"one of {', '.join(ESTIMATORS)} (default: NMF)")
    group.add_argument("-k", nargs="+", metavar="RANK", help="number of components; several, or 5:12, fit each of them")
    group.add_argument("--n-init", type=int, help="restarts; the best is published")
    group.add_argument("--seed", type=int, help="root of all random numbers (default: drawn, and written down)")
    group.add_argument("--config", metavar="FILE", help="a .toml file with the same names; the command line wins")
    _add_output(parser, "DATA_MODEL")
    _add_jobs(parser)


def _add_jobs(parser: Parser) -> None:
    group = parser.add_argument_group("long runs")
    group.add_argument(
        "--checkpoint", type=float, metavar="SECONDS", help="save the state of a fit so often, to go on after a failure"
    )
    group.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="compute in so many processes on this machine: restarts and ranks are dealt over them, or the samples",
    )
    group.add_argument("--gpus", type=int, metavar="N", help="the same, each with a GPU of its own")
    group.add_argument("--total-workers", type=int, default=None, help="split the work over so many calls (default: 1)")
    group.add_argument("--worker-index", type=int, default=None, help="which share this call computes, from 0")


def _add_select_rank(parser: Parser) -> None:
    _add_fit(parser)
    group = parser.add_argument_group("choice")
    group.add_argument("--criterion", default=None, help=f"one of {', '.join(CRITERIA)} (default: auto)")


def _add_transform(parser: Parser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a result folder, or a model file")
    _add_data(parser)
    parser.add_argument("-k", nargs=1, metavar="RANK", help="which rank of the folder (default: the suggested one)")
    parser.add_argument("--predict", action="store_true", help="classes instead of coefficients")
    parser.add_argument("--output", metavar="FILE", help="a .tsv, .csv or .npy file (default: DATA_usages.tsv)")
    parser.add_argument("-q", "--quiet", action="store_true", default=None, help="print errors only")


def _add_consensus(parser: Parser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a result folder of a fit with restarts")
    parser.add_argument("-k", nargs=1, metavar="RANK", help="which rank of the folder (default: the suggested one)")
    parser.add_argument("--density-threshold", type=float, default=0.5, help="see nnfactor.consensus (default: 0.5)")
    parser.add_argument("--mean-stability", type=float, default=0.8, help="of a stable solution, in the mean")
    parser.add_argument("--min-stability", type=float, default=0.2, help="of a stable solution, of its least component")
    parser.add_argument("-q", "--quiet", action="store_true", default=None, help="print errors only")


def _add_result(parser: Parser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a result folder")
    parser.add_argument("-q", "--quiet", action="store_true", default=None, help="print errors only")


def _add_combine(parser: Parser) -> None:
    _add_result(parser)
    parser.add_argument("--no-plots", action="store_true", default=None, help="write no pictures and no report")


def _add_info(parser: Parser) -> None:
    parser.add_argument("path", metavar="FILE_OR_RESULT")
    parser.add_argument("--key", help="which array of a file with several")
    parser.add_argument("--long", action="store_true", default=None, help="a text file lists entries")
    group = parser.add_argument_group("memory")
    group.add_argument(
        "--memory",
        action="store_true",
        help="say what a fit to a data file needs, without reading the file, and what fits",
    )
    group.add_argument("--model", default="NMF", help="the model of the fit (default: NMF)")
    group.add_argument("-k", nargs=1, metavar="RANK", help="its number of components (default: 10)")
    group.add_argument("--n-init", type=int, default=1, help="its restarts (default: 1)")
    group.add_argument("--dtype", choices=("float32", "float64"), help="its precision (default: that of the file)")
    group.add_argument("--max-bytes", metavar="SIZE", help="the size that the fit is told (default: one that would do)")


def _add_export(parser: Parser) -> None:
    _add_result(parser)
    parser.add_argument("--format", required=True, help=f"one of {', '.join(FORMATS)}")
    parser.add_argument("-k", nargs=1, metavar="RANK", help="which rank of the folder (default: the suggested one)")
    parser.add_argument("--output", metavar="PATH", help="folder or file to write (default: RESULT/export)")


ADD = {
    "fit": _add_fit,
    "transform": _add_transform,
    "select-rank": _add_select_rank,
    "consensus": _add_consensus,
    "combine": _add_combine,
    "plot": _add_result,
    "info": _add_info,
    "export": _add_export,
}
