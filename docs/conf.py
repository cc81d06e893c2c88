"""What Sphinx needs to build these pages: `python -m sphinx -W docs build/docs`."""

import os
import re
import warnings
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx_gallery.sorting import ExplicitOrder

import nnfactor

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")

project, author, release = "nnfactor", "the authors of nnfactor", nnfactor.__version__
project_copyright = author
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "examples"]
templates_path = ["_templates"]
default_role = "literal"

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

html_math_renderer = "mathml"  # formulas that every browser shows without a request
html_theme = "pydata_sphinx_theme"
html_title = f"nnfactor {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}

html_sidebars: dict[str, list[str]] = {"*": []}  # pages without pages below them take the whole width

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # docstrings give types in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

ORDER = ("topics", "unmixing", "signatures", "few_labels", "views", "fluorescence", "own_term", "solvers")
sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder([f"{name}.py" for name in ORDER]),
    "abort_on_example_error": True,
    "plot_gallery": True,
    "capture_repr": (),  # what an example tells it prints
    "show_memory": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "write_computation_times": False,
}


def set_formulas_apart(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make literal blocks of what docstrings indent: formulas and short pieces of code."""
    shown: list[str] = []
    depth = 0
    for before, line in zip(["", *lines], lines, strict=False):
        indent = len(line) - len(line.lstrip())
        if line.strip() and not before.strip() and indent > depth and not line.lstrip().startswith(">>>"):
            shown += [" " * depth + "::", ""]
        depth = indent if line.strip() else depth
        shown.append(line)
    lines[:] = shown


def keep_plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what docstrings write as text and docutils would read as markup: `loss_`, `|x|`."""
    literal, depth, example = False, 0, False
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            literal = literal and indent > depth
            example = (example and not literal) or line.lstrip().startswith(">>>")
        else:
            example = False
        if literal or example:
            continue
        if line.strip() == "::":
            literal, depth = True, indent
        parts = re.split(r"(`+[^`]+`+_?)", line)
        parts[::2] = [re.sub(r"(?<=\w)_(?![\w`])|(?<!\\)\|", r"\\\g<0>", part) for part in parts[::2]]
        lines[i] = "".join(parts)


def leave_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn documents: `get_params`, `set_fit_request` and the like."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn") else None


def colour_examples(app: Any, doctree: nodes.document) -> None:
    """Colour indented examples of Markdown pages as sessions of Python."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "none" and block.astext().startswith(">>>"):
            block["language"] = "pycon"


def write_math(translator: Any, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Register these, the first before numpydoc reads a docstring and the second after it."""
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("doctree-read", colour_examples)
    app.connect("autodoc-process-docstring", set_formulas_apart, priority=400)
    app.connect("autodoc-process-docstring", keep_plain_text, priority=600)
    app.connect("autodoc-skip-member", leave_out)
