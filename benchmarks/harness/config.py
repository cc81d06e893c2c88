"""Strict configurations: TOML read into dataclasses, unknown keys and wrong types refused, overrides, and back again.

experiment = "nge_speed"     # a kind
summary = "one line"         # for `python -m benchmarks list`
[run]                        # kinds.RunSettings
[parameters]                 # the kind's own dataclass
[bars]                       # numbers that the kind's measurements should reach, by the names in Parameters.BARS
[[paper]]                    # claims.Paper: what the paper prints, beside which ours is shown
[[claims]]                   # claims.Claim: what should hold, checked on the results
[[tables]]                   # claims.PageTable: what the page in docs/findings shows
[full.parameters]            # merged over the rest with --full; any table can be overridden
[quick.parameters]           # the same with --quick
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from .claims import Claim, PageTable, Paper
from .errors import ConfigError
from .kinds import RunSettings, kind
from .words import suggestion, unknown

FOLDER = Path(__file__).resolve().parents[2] / "configs"

VARIANTS = ("full", "quick")

Tables = dict[str, Any]


@dataclass(frozen=True)
class Header:
    """The top level of a config, without its parameters."""

    experiment: str
    summary: str = ""
    run: RunSettings = field(default_factory=RunSettings)
    bars: dict[str, float] = field(default_factory=dict)
    paper: tuple[Paper, ...] = ()
    claims: tuple[Claim, ...] = ()
    tables: tuple[PageTable, ...] = ()


@dataclass(frozen=True)
class Config:
    """A resolved configuration: what was run, with every default filled in."""

    name: str
    header: Header
    parameters: Any

    def tables(self) -> Tables:
        """As nested tables, for TOML."""
        return {**plain(self.header), "parameters": plain(self.parameters)}


def load(path: Path, overrides: Iterable[str] = (), variants: Iterable[str] = ()) -> Config:
    """Read a config; `variants` is a choice of "full" and "quick", `overrides` are `key.key=value` in TOML.

    Raises
    ------
    ConfigError
        Unreadable TOML, an unknown key (also in a variant that is not asked for), a value of the wrong type.
    """
    tables = read(path)
    extra = {v: tables.pop(v, {}) for v in VARIANTS}
    for v in VARIANTS:
        _resolve(path.stem, merge(tables, extra[v]), prefix=f"{v}." if extra[v] else "")
    for v in variants:
        tables = merge(tables, extra[v])
    for override in overrides:
        tables = merge(tables, _override(override))
    return _resolve(path.stem, tables)


def find(name: str) -> Path:
    """Find the file of a config: a path, or the bare name of one in `configs/`."""
    path = Path(name)
    if not path.suffix and not path.exists():
        path = FOLDER / f"{name}.toml"
    if not path.is_file():
        known = [p.stem for p in known_configs()]
        raise ConfigError(f"{name}: no such config; {suggestion(Path(name).stem, known)}")
    if not path.stem.strip("."):  # results go to a folder of this name
        raise ConfigError(f"{name}: a config is called by its name before .toml, which this one lacks; rename it")
    return path


def known_configs() -> list[Path]:
    """List the configs in `configs/`, sorted by name."""
    return sorted(FOLDER.glob("*.toml"))


def read(path: Path) -> Tables:
    """Read the tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def build(cls: Any, table: Mapping[str, Any], path: str = "") -> Any:
    """Make a dataclass from a table, strictly: errors name the key with its path."""
    hints = get_type_hints(cls)
    names = [f.name for f in fields(cls)]
    for key in table:
        if key not in names:
            raise ConfigError(f"{path}{key}: unknown key; {suggestion(key, names)}")
    for f in fields(cls):
        if f.name not in table and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{path}{f.name}: missing key")
    values = {key: convert(value, hints[key], f"{path}{key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{path}{error}") from None


def convert(value: Any, hint: Any, path: str) -> Any:
    """Convert a TOML value to the type that a field declares; integers pass as floats, nothing else does."""
    if is_dataclass(hint):
        return build(hint, _expect(value, dict, "a table", path), f"{path}.")
    if get_origin(hint) in (Union, UnionType):
        return convert(value, next(a for a in get_args(hint) if a is not NoneType), path)
    if get_origin(hint) is tuple:
        items = _expect(value, list, "a list", path)
        return tuple(convert(v, get_args(hint)[0], f"{path}[{i}]") for i, v in enumerate(items))
    if get_origin(hint) is dict:
        items = _expect(value, dict, "a table", path)
        return {key: convert(v, get_args(hint)[1], f"{path}.{key}") for key, v in items.items()}
    if hint is float:
        return float(_expect(value, (int, float), "a number", path))
    return _expect(value, hint, {int: "an integer", str: "a string", bool: "true or false"}[hint], path)


def plain(value: Any) -> Any:
    """Turn dataclasses into dicts, tuples into lists, without what is None."""
    if is_dataclass(value):
        pairs = ((f.name, getattr(value, f.name)) for f in fields(value))
        return {key: plain(v) for key, v in pairs if v is not None}
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def to_toml(tables: Tables, path: str = "") -> str:
    """Write nested tables as TOML text: plain keys first, then the tables."""
    lines = [f"{_key(key)} = {_literal(v)}" for key, v in tables.items() if not isinstance(v, dict)]
    for key, v in tables.items():
        if isinstance(v, dict):
            inner = f"{path}{_key(key)}"
            lines += ["", f"[{inner}]", to_toml(v, f"{inner}.").rstrip("\n")]
    return "\n".join(lines) + "\n"


def merge(base: Tables, over: Mapping[str, Any]) -> Tables:
    """`over` on top of `base`, table by table."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = merge(base[key], value) if both else value
    return merged


def _resolve(name: str, tables: Tables, prefix: str = "") -> Config:
    own = {key: v for key, v in tables.items() if key != "parameters"}
    known = [f.name for f in fields(Header)]
    for key in own:
        if key not in known:
            raise ConfigError(f"{prefix}{key}: unknown key; {suggestion(key, _all_keys(tables))}")
    header = build(Header, own, prefix)
    bars: tuple[str, ...] = getattr(kind(header.experiment).Parameters, "BARS", ())
    for bar in header.bars:
        if bar not in bars:
            raise ConfigError(f"{prefix}{unknown('bars', bar, bars, what='bar')}")
    table = _expect(tables.get("parameters", {}), dict, "a table", f"{prefix}parameters")
    return Config(name, header, build(kind(header.experiment).Parameters, table, f"{prefix}parameters."))


def flat(tables: Mapping[str, Any], path: str = "") -> Tables:
    """Flatten nested tables, keys with their paths."""
    found: Tables = {}
    for key, value in tables.items():
        found |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


def differences(there: Config, here: Config) -> list[str]:
    """List what decides about results and is not alike: `parameters.iterations: 100 there, 50 here`."""
    a, b = (
        flat({k: v for k, v in c.tables().items() if k in ("experiment", "run", "parameters")}) for c in (there, here)
    )
    keys = [key for key in dict.fromkeys([*a, *b]) if key != "run.threads" and a.get(key) != b.get(key)]
    return [f"{key}: {_show(a, key)} there, {_show(b, key)} here" for key in keys]


def _show(table: Tables, key: str) -> str:
    return _literal(table[key]) if key in table else "nothing"


def _all_keys(tables: Tables) -> list[str]:
    """Every key with its path, for suggestions."""
    parameters = kind(tables.get("experiment", "")).Parameters
    inner = {"run": RunSettings, "parameters": parameters}
    nested = [f"{table}.{f.name}" for table, cls in inner.items() for f in fields(cls)]
    return [*(f.name for f in fields(Header)), *VARIANTS, *nested, "parameters"]


def _override(text: str) -> Tables:
    """`a.b=value` as nested tables; a value that is not TOML is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: expected key=value, such as --set parameters.iterations=50")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def _expect(value: Any, types: Any, what: str, path: str) -> Any:
    wrong_bool = isinstance(value, bool) and types is not bool
    if wrong_bool or not isinstance(value, types):
        raise ConfigError(f"{path}: expected {what}, got {value!r}")
    return value


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_literal(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
