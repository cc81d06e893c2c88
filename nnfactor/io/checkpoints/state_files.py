"""Nested values as bytes: what a checkpoint is made of.

Dictionaries, lists, tuples, plain values, arrays and tensors come back as they were: bit by bit, tensors in their
memory order, and one tensor that stands in two places as one. In another order products could round in another way. The
format is a line with its number, the length of a JSON text, the text, the bytes of all arrays, and a checksum of
everything before it; nothing in it is executed. It is written piece by piece, without a copy of what is large.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

FORMAT = 1  # of the bytes; raise it whenever they, or what a checkpoint holds, change their meaning
TITLE = b"nnfactor checkpoint "
CHECKSUM = 32  # bytes


class DamagedFile(ValueError):
    """Bytes that are not what was written."""


def write_state(file: BinaryIO, content: Mapping[str, Any]) -> int:
    """Write a value to an open file; return the number of bytes."""
    arrays: list[tuple[int, np.ndarray]] = []
    text = json.dumps(_encode(content, arrays, {}), separators=(",", ":")).encode()
    checksum, size = hashlib.blake2b(digest_size=CHECKSUM), CHECKSUM
    head = TITLE + b"%d\n" % FORMAT + len(text).to_bytes(8, "little") + text
    for part in (memoryview(head), *(_as_bytes(A) for _, A in arrays)):
        checksum.update(part)
        file.write(part)
        size += part.nbytes
    file.write(checksum.digest())
    return size


def read_state(data: bytes, where: str) -> dict[str, Any]:
    """Read what `write_state` wrote; `where` names it in errors.

    Raises
    ------
    DamagedFile
        Bytes are missing or have changed.
    ValueError
        No file of this kind, or of another format.
    """
    if not data.startswith(TITLE[: len(data)]):
        raise ValueError(f"{where} is no checkpoint of nnfactor; it is left as it is: use another path")
    title, _, rest = data.partition(b"\n")
    number = title.removeprefix(TITLE)
    if rest and number.isdigit() and int(number) != FORMAT:
        raise ValueError(
            f"{where} has format {int(number)}, and this version of nnfactor reads and writes format {FORMAT}: go on "
            "with the version that wrote it, or delete the file to begin anew"
        )
    body = memoryview(data)[:-CHECKSUM]
    if hashlib.blake2b(body, digest_size=CHECKSUM).digest() != data[-CHECKSUM:]:
        raise DamagedFile(f"{where} is damaged or truncated: its checksum is not that of its content")
    start = len(title) + 9
    end = start + int.from_bytes(body[len(title) + 1 : start], "little")
    return _decode(json.loads(bytes(body[start:end])), body[end:], {})


def _as_bytes(A: np.ndarray) -> memoryview:
    """View the memory of a contiguous array."""
    return A.reshape(-1).view(np.uint8).data if A.size else memoryview(b"")


def _encode(value: Any, arrays: list[tuple[int, np.ndarray]], known: dict[int, Any]) -> Any:
    """Turn a value into JSON; arrays go to the list, and their place among all bytes stands for them."""
    again = lambda v: _encode(v, arrays, known)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {"dict": [[key, again(v)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [again(v) for v in value]}
    if isinstance(value, np.ndarray):
        return {"array": _keep(np.ascontiguousarray(value), arrays), "shape": value.shape, "dtype": value.dtype.str}
    if not isinstance(value, Tensor):
        raise TypeError(f"a checkpoint cannot hold {value!r}")
    if id(value) not in known:
        once = value.detach()[tuple(slice(0, 1) if s == 0 else slice(None) for s in value.stride())]
        order = sorted(range(value.dim()), key=value.stride().__getitem__, reverse=True)
        place = _keep(np.ascontiguousarray(once.cpu().permute(order).numpy()), arrays)
        kind = {"shape": tuple(value.shape), "stride": value.stride(), "order": order}
        known[id(value)] = {"tensor": place, "dtype": str(value.dtype).removeprefix("torch."), **kind}
    return known[id(value)]


def _keep(A: np.ndarray, arrays: list[tuple[int, np.ndarray]]) -> tuple[int, int]:
    """Append an array, with where it ends among all bytes; return where it begins, and its length."""
    begin = arrays[-1][0] if arrays else 0
    arrays.append((begin + A.nbytes, A))
    return begin, A.nbytes


def _decode(value: Any, data: memoryview, known: dict[Any, Tensor]) -> Any:
    """Make the value again."""
    again = lambda v: _decode(v, data, known)
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: again(v) for key, v in value["dict"]}
    if "list" in value:
        return [again(v) for v in value["list"]]
    if "tuple" in value:
        return tuple(again(v) for v in value["tuple"])
    begin, size = value["array" if "array" in value else "tensor"]
    part = np.frombuffer(data[begin : begin + size], np.uint8).copy()
    if "array" in value:
        return part.view(value["dtype"]).reshape(value["shape"])
    place = (begin, size) if size else id(value)
    if place not in known:
        known[place] = _decode_tensor(value, part)
    return known[place]


def _decode_tensor(value: dict[str, Any], part: np.ndarray) -> Tensor:
    """Make a tensor in memory of torch, with the strides that it had."""
    shape, stride, order = value["shape"], value["stride"], value["order"]
    dtype = getattr(torch, value["dtype"])
    once = [min(n, 1) if s == 0 else n for n, s in zip(shape, stride, strict=True)]
    made = torch.empty_strided(once, stride, dtype=dtype, device="cpu")
    dense = torch.from_numpy(part).view(dtype) if part.size else torch.empty(0, dtype=dtype, device="cpu")
    back = [order.index(d) for d in range(len(order))]
    made.copy_(dense.view([once[d] for d in order]).permute(back))
    return made.expand(shape) if once != list(shape) else made
