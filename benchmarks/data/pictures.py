"""Images as one PNG: bases, faces, what a person looks at. NumPy and zlib only."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..harness.results import Row


def row(point: dict[str, Any], caption: str, images: NDArray, columns: int = 10, zoom: int = 2) -> Row:
    """Make a row of a study that shows images (n, height, width); see `tiles`."""
    return {"kind": "picture", "point": point, "caption": caption, **tiles(images, columns, zoom)}


def tiles(images: NDArray, columns: int = 10, zoom: int = 2) -> Row:
    """Images side by side, each stretched to its own range, as base64 PNG (`png`) and its `width` on a page."""
    X = np.asarray(images, dtype=np.float64)
    low, high = X.min((1, 2), keepdims=True), X.max((1, 2), keepdims=True)
    X = np.round(255 * (X - low) / np.where(high > low, high - low, 1)).astype(np.uint8)
    n, h, w = X.shape
    columns = min(columns, n)
    lines = -(-n // columns)
    sheet = np.full((lines * (h + 1) + 1, columns * (w + 1) + 1), 255, dtype=np.uint8)
    for i, image in enumerate(X):
        top, left = 1 + (i // columns) * (h + 1), 1 + (i % columns) * (w + 1)
        sheet[top : top + h, left : left + w] = image
    return {"png": b64encode(png(sheet)).decode(), "width": zoom * sheet.shape[1]}


def png(grey: NDArray[np.uint8]) -> bytes:
    """Write a grey image as a file."""
    h, w = grey.shape
    lines = np.hstack([np.zeros((h, 1), np.uint8), grey])  # no filter
    header = struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    packed = (struct.pack(">I", len(c)) + name + c + struct.pack(">I", zlib.crc32(name + c)) for name, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
