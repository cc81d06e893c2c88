"""The layout that CONTRIBUTING draws: sizes of folders, files, functions and classes, and imports that go one way."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(p for package in ("nnfactor", "benchmarks") for p in (ROOT / package).rglob("*.py"))
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}

CHAIN = [
    ("nnfactor.version",),
    (
        "nnfactor.core.arguments",
        "nnfactor.core.arrays",
        "nnfactor.core.cache",
        "nnfactor.core.free_memory",
        "nnfactor.core.gpu",
        "nnfactor.core.precision",
    ),
    ("nnfactor.core.compiled",),
    ("nnfactor.core.labels", "nnfactor.core.linalg"),
    ("nnfactor.core.factors", "nnfactor.core.divergence", "nnfactor.core.multilinear"),
    ("nnfactor.core.data",),
    ("nnfactor.core.slices",),
    ("nnfactor.core.graph",),
    ("nnfactor.core.block",),
    ("nnfactor.core.terms",),
    ("nnfactor.core.rules",),
    ("nnfactor.core.solve",),
    ("nnfactor.core",),
    ("nnfactor.sparse_coding", "nnfactor.graphs", "nnfactor.kernels", "nnfactor.metrics"),
    ("nnfactor.penalties", "nnfactor.io", "nnfactor.callbacks"),
    ("nnfactor.models",),
    ("nnfactor.selection",),
    ("nnfactor.plots",),
    ("nnfactor",),
    ("nnfactor.cli",),
    ("nnfactor.__main__",),
    ("benchmarks",),
]


@cache
def tree(path):
    return ast.parse(path.read_text())


def functions(path):
    return [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def classes(path):
    return [n for n in ast.walk(tree(path)) if isinstance(n, ast.ClassDef)]


def imports(module):
    """Modules of the project that a module imports anywhere: for types and inside functions too."""
    path, found = MODULES[module], set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            inside = {f"{source}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else source for name in inside}
    return {name for name in found if name in MODULES} - {module}


def link(module):
    """The position in the chain of the longest prefix that names the module."""
    fits = [
        (len(prefix), i)
        for i, several in enumerate(CHAIN)
        for prefix in several
        if f"{module}.".startswith(f"{prefix}.")
    ]
    return max(fits)[1]


def test_no_folder_has_more_than_fifteen_files():
    folders = {p.parent for p in (*FILES, *(ROOT / "tests").rglob("*.py"))}
    assert not {f: n for f in folders if (n := len(list(f.glob("*.py")))) > 15}


def test_no_file_has_more_than_four_hundred_lines():
    assert not {p: n for p in FILES if (n := len(p.read_text().splitlines())) > 400}


def test_no_function_has_more_than_sixty_lines():
    sizes = {(p.name, f.name): f.end_lineno - f.lineno + 1 for p in FILES for f in functions(p)}
    assert not {name: n for name, n in sizes.items() if n > 60}


def test_no_class_has_more_than_twenty_methods():
    count = lambda c: sum(isinstance(n, ast.FunctionDef) for n in c.body)
    assert not {(p.name, c.name): count(c) for p in FILES for c in classes(p) if count(c) > 20}


def test_inheritance_is_at_most_three_deep():
    bases = {c.name: [ast.unparse(b).rpartition(".")[2] for b in c.bases] for p in FILES for c in classes(p)}
    depth = lambda name: max((1 + depth(b) for b in bases[name] if b in bases), default=0)  # steps to the top
    assert not {name: depth(name) for name in bases if depth(name) > 3}


def test_no_import_goes_in_a_circle():
    try:
        TopologicalSorter({module: imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_go_one_way():
    assert not [(module, name) for module in MODULES for name in imports(module) if link(name) > link(module)]


def test_no_private_name_is_imported():
    private = lambda name: name.startswith("_") and not name.startswith("__")
    found = [
        (p.name, alias.name)
        for p in FILES
        for node in ast.walk(tree(p))
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").startswith(("nnfactor", "benchmarks")))
        for alias in node.names
        if private(alias.name)
    ]
    assert not found


def test_storage_kinds_are_told_apart_in_their_folder_only():
    kinds = {"Chunked", "Dense", "Sparse", "SparseTensor", "CSR"}
    outside = [p for p in FILES if "nnfactor/core/data" not in p.as_posix()]
    calls = [(p, n) for p in outside for n in ast.walk(tree(p)) if isinstance(n, ast.Call) and len(n.args) == 2]
    asked = [(p, n) for p, n in calls if isinstance(n.func, ast.Name) and n.func.id == "isinstance"]
    assert not [
        (p.name, n.lineno) for p, n in asked if kinds & {x.id for x in ast.walk(n.args[1]) if isinstance(x, ast.Name)}
    ]


def test_terms_and_models_do_not_turn_factors():
    outside = [
        p
        for p in FILES
        if any(
            part in p.as_posix() for part in ("core/terms", "models/factorization", "models/multiway", "models/shared")
        )
    ]
    turned = [
        (p.name, n.lineno)
        for p in outside
        for n in ast.walk(tree(p))
        if isinstance(n, ast.Attribute) and n.attr == "mT"
    ]
    assert not turned


def test_few_parameters_are_assigned_by_hand():
    same = lambda n: (
        isinstance(n, ast.Assign)
        and isinstance(n.value, ast.Name)
        and [ast.unparse(t) for t in n.targets] == [f"self.{n.value.id}"]
    )
    assert sum(same(n) for p in FILES if "nnfactor" in p.parts for n in ast.walk(tree(p))) <= 60
