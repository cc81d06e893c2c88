"""Checkpoints of fits: what was drawn and decided, the results of runs that ended, and the run that has not.

Three files. The one that is named holds the fit as it was last saved, and the one with ".previous" behind the name as
it was before that. Both are written beside their place and moved there, so that each is complete at any moment. Results
of runs that ended are appended to a third one, ".results", each with its checksum; the others say where they stand.
"""

import errno
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

from ...core.arguments import nonnegative
from ...core.solve.history.checkpoint import INTERRUPTS
from ...core.solve.history.progress import LOG
from ...version import VERSION
from .state_files import DamagedFile, read_state, write_state

SHARE = 0.1  # of the time that is spent on saving, at most: then the period becomes longer than it was asked for

BEGIN_ANEW = "use another path for this fit, or delete the file to begin anew"


class FitCheckpoint:
    """The checkpoint of one fit, which goes on from what the file holds; `core.run` asks it for every run in turn.

    Parameters
    ----------
    path : str or path
        The file. Two more stand beside it: `path` with ".previous" and with ".results" behind.
    every : float
        Seconds between two savings; more where they would take a tenth of the time or more. 0: after every sweep.
    about : dict of str
        What must be equal for the file to be of this fit: by name.

    Raises
    ------
    ValueError
        The file is of another fit, another version or another program, or both files are damaged.
    OSError
        It cannot be read; from `begin` on: it cannot be written, or another process writes to it.
    """

    def __init__(self, path: str | os.PathLike[str], every: float, about: Mapping[str, Any]) -> None:
        nonnegative("checkpoint_every", every)
        self.path, self.every, self.about = Path(path), float(every), {"nnfactor": VERSION, **about}
        self.previous, self.results_path = (Path(f"{os.fspath(path)}.{kind}") for kind in ("previous", "results"))
        self.recalled: dict[str, list[Any]] = {}
        self.results: dict[int, tuple[int, int]] = {}  # of every run that ended: where its result begins and ends
        self.unfinished: dict[str, Any] | None = None  # the run that is under way: its number and its condition
        self.asked: dict[str, int] = {}
        self.number, self.saved_at, self.cost = -1, time.monotonic(), 0.0
        self.written, self.sized, self.keeps_previous = False, False, False
        self.held: BinaryIO | None = None
        self.splits_rows = False
        with self._explained("read"):
            known = self._read()
        if known is not None:
            self._refuse_other(known["about"])
            self.recalled, self.results, self.unfinished = known["recalled"], known["results"], known["unfinished"]
            self._compare_environment(known["environment"])

    @property
    def of_parts(self) -> bool:
        """Whether it was begun by processes that share the samples: then data are compared to rounding."""
        return "measures of X" in self.recalled

    def recall(self, name: str, value: Any) -> Any:
        """Return what was kept of a decision under this name, the same call of the fit before; else keep this one."""
        place = self.asked[name] = self.asked.get(name, -1) + 1
        kept = self.recalled.setdefault(name, [])
        if place == len(kept):
            kept.append(value)
        return kept[place]

    def expect(self, name: str, value: str) -> None:
        """Refuse a file that knows something else under this name."""
        if (kept := self.recall(name, value)) != value:
            raise ValueError(
                f"checkpoint={os.fspath(self.path)!r} is of other data: its {name} is {kept}, now it is {value}; give "
                f"the same data, {BEGIN_ANEW}"
            )

    def begin(self) -> None:
        """Write the file for the first time, before anything takes long."""
        with self._explained("written"):
            self._lock()
            self._write()
        self.written = True

    def load(self) -> dict[str, Any] | None:
        """Return the result of the run that begins now, or its condition; None if it never began."""
        self.number += 1
        if self.number in self.results:
            try:
                return self._read_result(*self.results[self.number])
            except (OSError, ValueError) as error:
                warnings.warn(f"a run is computed again: {error}", UserWarning, stacklevel=2)
                del self.results[self.number]
        if self.unfinished is None or self.unfinished["number"] != self.number:
            return None
        condition, self.unfinished = self.unfinished["condition"], None
        return condition

    def is_due(self) -> bool:
        """Tell whether it is time to save: once after the first sweep, to see that there is room, then periodically."""
        wait = max(self.every, self.cost / SHARE) if self.every else 0.0
        return not self.sized or time.monotonic() - self.saved_at >= wait

    def save(self, condition: Mapping[str, Any]) -> None:
        """Save the condition of a run; when that fails later in a fit, what was saved before stays."""
        self.unfinished = {"number": self.number, "condition": condition}
        begun = time.monotonic()
        if not self.sized:
            with self._explained("written"):
                self._write(room=True)
            self.sized = True
        else:
            self._try(self._write)
        self.unfinished = None
        self.saved_at = time.monotonic()
        self.cost = self.saved_at - begun

    def save_result(self, result: Mapping[str, Any]) -> None:
        """Append the result of a run."""

        def append() -> None:
            begin = max((end for _, end in self.results.values()), default=0)
            with open(self.results_path, "r+b" if self.results else "wb") as file:
                file.seek(begin)
                end = begin + write_state(file, result)
                file.truncate()
                _sync(file)
            self.results[self.number] = begin, end
            self._write()

        self._try(append)

    def __enter__(self) -> "FitCheckpoint":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.held is not None:
            self.held.close()
        if isinstance(error, INTERRUPTS) and self.written:
            name = os.fspath(self.path)
            note = f"checkpoint={name!r} has what was done: the same call, with the same data, goes on from there"
            error.add_note(note)
            LOG.warning(note)

    def _lock(self) -> None:
        """Hold the file of results, so that no second process writes to it; the system lets go when this one ends."""
        self.held = open(self.results_path, "ab")  # noqa: SIM115
        try:
            if fcntl is not None:
                fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(errno.EAGAIN, "another fit is writing to it") from None
        except OSError:  # some file systems of networks know no locks
            LOG.info("%s cannot be locked", self.results_path)

    def _read(self) -> dict[str, Any] | None:
        """Read the newest file that is not damaged."""
        damaged: DamagedFile | None = None
        for path in (self.path, self.previous):
            try:
                data = path.read_bytes()
                if not data:
                    continue
                known = read_state(data, f"checkpoint={os.fspath(path)!r}")
            except FileNotFoundError:
                continue
            except DamagedFile as error:
                damaged = damaged or error
                continue
            if damaged is not None:
                warnings.warn(f"{damaged}; the fit goes on from the file before it, {path}", UserWarning, stacklevel=6)
                self.keeps_previous = True  # the damaged one must not take its place
            return known
        if damaged is not None:
            raise ValueError(f"{damaged}, and there is none before it that is whole; {BEGIN_ANEW}")
        return None

    def _read_result(self, begin: int, end: int) -> dict[str, Any]:
        with open(self.results_path, "rb") as file:
            file.seek(begin)
            return read_state(file.read(end - begin), f"a result in {self.results_path}")

    def _refuse_other(self, known: Mapping[str, Any]) -> None:
        """Refuse a file that says other things about its fit."""
        names = [name for name in {**known, **self.about} if known.get(name) != self.about.get(name)]
        if names:
            told = ", ".join(
                f"{name} is {_shorten(known.get(name))}, not {_shorten(self.about.get(name))}" for name in names[:3]
            )
            raise ValueError(f"checkpoint={os.fspath(self.path)!r} is of another fit: its {told}; {BEGIN_ANEW}")

    def _compare_environment(self, known: Mapping[str, Any]) -> None:
        """Tell when results will be the same to rounding only."""
        now = _environment()
        other = [f"{name} {known.get(name)}, now {now[name]}" for name in now if now[name] != known.get(name)]
        if other:
            LOG.warning("%s was written with %s: results are the same to rounding", self.path, ", ".join(other))

    def _write(self, room: bool = False) -> None:
        """Write everything anew, keeping the file before."""
        names = ("about", "recalled", "results", "unfinished")
        content = {"environment": _environment(), **{name: getattr(self, name) for name in names}}
        new = self.path.with_name(f".{self.path.name}.new")
        try:
            with open(new, "wb") as file:
                size = write_state(file, content)
                _sync(file)
            if room:  # the file before, the next one, and a result
                _reserve(self.path.with_name(f".{self.path.name}.room"), 3 * size)
            if self.path.exists() and not self.keeps_previous:
                os.replace(self.path, self.previous)
            os.replace(new, self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self.keeps_previous = False
        _sync_folder(self.path.parent)

    def _try(self, write: Callable[[], None]) -> None:
        """Write; a fit that ran for hours goes on when that fails."""
        try:
            write()
        except OSError as error:
            told = f"checkpoint={os.fspath(self.path)!r} could not be written ({error}); the fit goes on"
            warnings.warn(told, RuntimeWarning, stacklevel=2)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Name the path and the reason when the file cannot be used at all."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            hint = "give the path of a file in a folder that exists, may be written to and has room"
            told = f"checkpoint={os.fspath(self.path)!r} cannot be {what}: {reason}; {hint}"
            raise type(error)(error.errno, told) from error


def _environment() -> dict[str, Any]:
    """List what rounding depends on."""
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads()}


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _sync(file: Any) -> None:
    """Bring what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring the names of the files to the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    except OSError:  # some file systems of networks refuse
        pass
    finally:
        os.close(number)


def _reserve(path: Path, size: int) -> None:
    """See that there is room for so many bytes, and give it back."""
    try:
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # file systems that cannot reserve
            raise
    finally:
        path.unlink(missing_ok=True)
