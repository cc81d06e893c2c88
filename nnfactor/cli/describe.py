"""Help: of a verb, and with `--model NAME` of every parameter of a model, from its signature and docstring."""

import argparse
import inspect
import textwrap
from typing import Any

import nnfactor

from .arguments import ESTIMATORS, Parser
from .errors import UserError, in_options, nearest

TOLD_OTHERWISE = ("callback", "verbose")  # the command line has its own progress


def print_help(arguments: argparse.Namespace, parser: Parser) -> None:
    """Print the help of a verb, and of a model if one was named."""
    print(parser.format_help())
    if getattr(arguments, "named", False):
        cls = find_model(arguments.model)
        print(f"parameters of {arguments.model}:")
        texts = _texts(cls)
        for name, parameter in model_parameters(cls).items():
            required = parameter.default is inspect.Parameter.empty
            default = "required" if required else f"default: {parameter.default!r}"
            print(f"  --{name.replace('_', '-')}  ({default})")
            for line in textwrap.wrap(texts.get(name, ""), 96):
                print(f"      {line}")


def find_model(name: str) -> Any:
    """Return the class of an estimator."""
    if name not in ESTIMATORS:
        raise UserError(f"there is no model {name!r}{nearest(name, ESTIMATORS)}; use one of {', '.join(ESTIMATORS)}")
    return getattr(nnfactor, name)


def model_parameters(cls: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that a command line can set."""
    found = inspect.signature(cls, eval_str=True).parameters
    return {name: p for name, p in found.items() if name not in TOLD_OTHERWISE}


def option_names() -> set[str]:
    """List all names of parameters that are options: those of the models, and of readers of files."""
    readers = {"key", "labels", "names", "weights", "criterion", "density_threshold", "checkpoint"}
    return readers.union(*(model_parameters(find_model(name)) for name in ESTIMATORS))


def told_in_options(message: object) -> str:
    """Return a message of the package as one line that names options."""
    return in_options(" ".join(str(message).split()), option_names())


def _texts(cls: Any) -> dict[str, str]:
    """Find what the docstring says of each parameter; of a class without one, its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        doc = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        section = doc.partition("Parameters\n----------\n")[2].partition("\n\nAttributes")[0]
        names: list[str] = []
        for line in section.splitlines():
            if line and not line.startswith(" ") and " : " in line:
                head, _, kind = line.partition(" : ")
                names = [name.strip() for name in head.split(",")]
                found |= dict.fromkeys(names, kind.strip())
            elif line.strip():
                found |= {name: f"{found[name]}  {line.strip()}" for name in names}
    return found
