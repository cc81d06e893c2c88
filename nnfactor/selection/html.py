"""Tables for notebooks and pages: plain, escaped, without colours of their own."""

from collections.abc import Collection, Sequence
from html import escape
from typing import Any

import numpy as np


def format_cell(value: Any) -> str:
    """Write a value with four significant digits; a dash for what is missing.

    >>> [format_cell(v) for v in (0.0123456, 12345.6, 3, True, float("nan"), None, "a")]
    ['0.01235', '12346', '3', 'yes', '–', '–', 'a']
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or ((is_float := isinstance(value, float | np.floating)) and np.isnan(value)):
        return "–"  # noqa: RUF001
    if not is_float:
        return str(value)
    number = float(value)
    return f"{number:.0f}" if 1000 <= abs(number) < 1e6 else f"{number:.4g}"


def html_table(head: Sequence[str], rows: Sequence[Sequence[Any]], marked: Collection[int] = ()) -> str:
    """Write a table; marked rows are bold."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = []
    for i, row in enumerate(rows):
        cells = [escape(format_cell(value)) for value in row]
        lines.append("".join(f"<td><b>{c}</b></td>" if i in marked else f"<td>{c}</td>" for c in cells))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
