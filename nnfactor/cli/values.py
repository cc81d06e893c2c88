"""Values of parameters as text: numbers, words, lists, dictionaries, penalties and graphs, arrays from files."""

import ast
import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import nnfactor

from ..io.data_files import read_data
from .describe import find_model, model_parameters
from .errors import UserError, nearest

# What may be called by name in a value, with values as arguments; nothing else is ever called.
CALLED = {
    **{name: f"penalties.{name}" for name in ("L1", "L2", "L21", "Smooth", "Orthogonal")},
    "MarginalFisher": "MarginalFisher",
    "grid_graph": "graphs.grid_graph",
}

WORDS = {"none": None, "true": True, "false": False, "nan": float("nan"), "inf": float("inf")}

FUNCTIONS = ("terms", "kernel")  # parameters that may name a function of the user's own, as module:name


def make_estimator(model: str, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Make an estimator from texts of its parameters, and from values that have options of their own."""
    cls = find_model(model)
    known = model_parameters(cls)
    for name in parameters:
        if name not in known:
            options = [f"--{k.replace('_', '-')}" for k in known]
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{model} has no option {option}{nearest(option, options)}; --model {model} --help lists them"
            )
    words = {name: words_of(known[name].annotation) for name in parameters}
    values = {k: text if text in words[k] else read_parameter(k, text) for k, text in parameters.items()} | dict(given)
    missing = [name for name, p in known.items() if p.default is inspect.Parameter.empty and name not in values]
    if missing:
        option = "-k" if missing[0] in rank_names(cls) else f"--{missing[0].replace('_', '-')}"
        raise UserError(f"{model} needs {option}")
    return cls(**values)


def rank_names(cls: Any) -> tuple[str, ...]:
    """Return the parameter that `-k` sets, if there is one: the first, a number of components."""
    names = ("n_components", "ranks", "n_clusters")
    return tuple(name for name in names if name in model_parameters(cls))


def words_of(annotation: Any) -> list[Any]:
    """List the words that a parameter takes, from its `Literal`s: "nan" is one of `missing`, and no number there."""
    inside = get_args(annotation)
    return list(inside) if get_origin(annotation) is Literal else [w for part in inside for w in words_of(part)]


def read_parameter(name: str, value: Any) -> Any:
    """Read the value of a parameter: a text of the command line, or what a TOML file holds."""
    if name in FUNCTIONS and isinstance(value, str) and ":" in value:
        return _import(name, value)
    return read_value(value, f"--{name.replace('_', '-')}")


def read_value(value: Any, option: str) -> Any:
    """Read a value; text that is no literal stays text."""
    if isinstance(value, Mapping):
        return {key: read_value(v, option) for key, v in value.items()}
    if isinstance(value, list):
        return [read_value(v, option) for v in value]
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("@"):
        return read_data(text[1:]).values
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return value
    return value if isinstance(tree, ast.Name | ast.BinOp | ast.Attribute) else _evaluate(tree, option, text)


def _evaluate(node: ast.AST, option: str, text: str) -> Any:
    """Evaluate literals, and calls of the names that are known."""
    again = lambda n: _evaluate(n, option, text)
    if isinstance(node, ast.Constant):
        return read_value(node.value, option) if isinstance(node.value, str) else node.value
    if isinstance(node, ast.Name) and node.id.lower() in WORDS:
        return WORDS[node.id.lower()]
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -again(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        items = [again(item) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise UserError(f"{option} {text!r}: a dictionary lists its entries")
        return {again(key): again(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, [again(a) for a in node.args], {str(k.arg): again(k.value) for k in node.keywords})
    raise UserError(
        f"{option} {text!r} is no value: use a number, a word, a list, a dictionary, or one of {', '.join(CALLED)}"
    )


def _call(name: str, args: list[Any], keywords: dict[str, Any]) -> Any:
    if name not in CALLED:
        raise UserError(f"{name}(...) is not known{nearest(name, CALLED)}; use one of {', '.join(CALLED)}")
    made: Any = nnfactor
    for part in CALLED[name].split("."):
        made = getattr(made, part)
    return made(*args, **keywords)


def _import(name: str, place: str) -> Any:
    """Import a function of the user's own."""
    module, _, attribute = place.partition(":")
    if "" not in sys.path:  # the folder of the user, as for `python -m nnfactor`
        sys.path.insert(0, "")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--{name} {place}: {error}") from None
