"""Pieces of a page that needs no other file: tables that can be sorted, pictures inside it, links to files beside it.

Reports of result folders and of benchmarks are made of them.
"""

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any, SupportsFloat
from urllib.parse import quote

from matplotlib.figure import Figure

from ..selection.html import format_cell

TEMPLATE = Path(__file__).with_name("report.html")


def table(
    caption: str,
    head: Iterable[str],
    rows: Iterable[Sequence[Any]],
    marked: Collection[int] = (),
    classes: Mapping[str, str] = {},
) -> str:
    """Write a table, whose heads become buttons that sort it; numbers are rounded, and sorted in full.

    `marked` rows are bold; `classes` gives the class of a cell by its word. A column with a word is set as text.
    """
    names, lists = list(head), [list(row) for row in rows]
    texts = [any(isinstance(row[j], str) for row in lists) for j in range(len(names))]
    kinds = ["text" if is_text else "" for is_text in texts]
    heads = "".join(
        f'<th scope="col"{_class(kind)}>{escape(name)}</th>' for name, kind in zip(names, kinds, strict=True)
    )
    lines = []
    for i, row in enumerate(lists):
        cells = "".join(_cell(value, kind, classes) for value, kind in zip(row, kinds, strict=True))
        lines.append(f"<tr{' class=marked' if i in marked else ''}>{cells}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table class="sortable">'
        f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(value: Any, kind: str, classes: Mapping[str, str]) -> str:
    number = "" if value is None else repr(float(value)) if isinstance(value, SupportsFloat) else None
    full = "" if number is None else f' data-value="{number}"'  # an empty one is sorted last
    known = f"{kind} {classes.get(value, '')}".strip() if isinstance(value, str) else kind
    return f"<td{_class(known)}{full}>{escape(format_cell(value))}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def paragraph(text: str, kind: str = "") -> str:
    """Write a paragraph; `kind` is "note" for what a reader must not miss."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def picture(data: bytes, text: str, caption: str = "", wide: bool = False, *, kind: str = "png", width: int = 0) -> str:
    """Put a picture into the page, with a text for those who do not see it; a wide one is scrolled on a phone.

    `kind` is "png" or "svg+xml". With a `width`, in pixels of the page, the picture's own pixels stay sharp.
    """
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    source = f"data:image/{kind};base64,{b64encode(data).decode()}"
    size = f' class="pixels" style="width: {width}px"' if width else ""
    around = ' class="wide" tabindex="0"' if wide else ""
    return f'<figure{around}><img{size} src="{source}" alt="{escape(text)}">{below}</figure>'


def as_png(figure: Figure) -> bytes:
    """Draw a figure on white paper."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def file_links(folder: Path, files: Sequence[Path]) -> str:
    """List links to files beside the page."""
    items = []
    for file in files:
        path = file.relative_to(folder).as_posix()
        items.append(f'<li><a href="{escape(quote(path))}">{escape(file.name)}</a> ({_size(file.stat().st_size)})</li>')
    return f'<ul class="files">{"".join(items)}</ul>' if items else ""


def _size(n: int) -> str:
    """Write a number of bytes.

    >>> [_size(n) for n in (12, 2500, 3_400_000)]
    ['12 bytes', '2.5 kB', '3.4 MB']
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"


def section(key: str, title: str, parts: Sequence[str]) -> str:
    """Write a section under a heading."""
    body = "\n".join(part for part in parts if part)
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>\n{body}\n</section>'


def folded(key: str, title: str, parts: Sequence[str], is_open: bool) -> str:
    """Write a part that can be folded."""
    body = "\n".join(part for part in parts if part)
    return f'<details id="{key}"{" open" if is_open else ""}><summary>{escape(title)}</summary>\n{body}\n</details>'


def page(title: str, answer: str, links: Mapping[str, str], sections: Sequence[str]) -> str:
    """Write the page; `answer` is a sentence, `links` are titles by key."""
    items = "".join(f'<li><a href="#{key}">{escape(text)}</a></li>' for key, text in links.items())
    shown = f'<p class="answer">{escape(answer)}</p>' if answer else ""
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), answer=shown, links=items, sections="\n".join(sections))
