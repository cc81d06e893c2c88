"""Start several processes for one run, and tell one error for all. Nothing here imports torch.

A process that is started here is told by its environment which one it is (`processes`).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

MEET = "NNFACTOR_MEET"  # in the environment of a process: the folder where those of a run meet

TORCHRUN = "TORCHELASTIC_RUN_ID"  # the same of processes that torchrun has started

GRACE = 10.0  # seconds that the others have to end by themselves when a process has failed


def is_one_of_several() -> bool:
    """Tell whether this process was started as one of several for a run."""
    return MEET in os.environ or TORCHRUN in os.environ


def leave(line: str, status: int, error: BaseException) -> NoReturn:
    """End this process after an error, at once: parts of the group would wait for others. The parent tells the error.

    Under torchrun there is no such parent: then the first process tells it that the error does not name.
    """
    rank, lost = int(os.environ["RANK"]), getattr(error, "ranks", None)
    if MEET in os.environ:
        path = Path(os.environ[MEET], f"error_{rank}.json")
        path.with_suffix(".new").write_text(json.dumps({"line": line, "status": status, "lost": lost}))
        os.replace(path.with_suffix(".new"), path)
    elif lost is None or rank == next(r for r in count() if r not in lost):
        print(line, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def launch(argv: Sequence[str], size: int) -> int:
    """Run a command line in several processes; return the status of the run, and tell one error for all."""
    with tempfile.TemporaryDirectory(prefix="nnfactor_") as meet:
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, _cores() // size)))
        environment = {**os.environ, MEET: meet, "WORLD_SIZE": str(size), "OMP_NUM_THREADS": threads}
        children = [_start(argv, {**environment, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(size)]
        try:
            killed = _wait(children)
        except BaseException:
            _end(children, GRACE)  # Ctrl-C reaches them, too; they save what they have
            raise
        finally:
            for child in children:
                assert child.stdin is not None
                child.stdin.close()
        statuses = [child.returncode for child in children]
        if not any(statuses):
            return 0
        if "--debug" in argv:
            for path in sorted(Path(meet).glob("stderr_*")):
                sys.stderr.write(path.read_text(errors="replace"))
        known = {r: json.loads(p.read_text()) for r in range(size) if (p := Path(meet, f"error_{r}.json")).exists()}
        line, status = choose_error(statuses, killed, known)
        print(line, file=sys.stderr)
        return status


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process; what others than the first tell is kept for `--debug`."""
    command = [sys.executable, "-m", __package__.partition(".")[0], *argv]
    if environment["RANK"] == "0":
        return subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE)
    with open(Path(environment[MEET], f"stderr_{environment['RANK']}"), "wb") as told:
        return subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE, stdout=told, stderr=told)


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """Wait until all have ended; some time after the first failure end the rest, and return which those were."""
    failed_at = None
    while running := {r for r, child in enumerate(children) if child.poll() is None}:
        if failed_at is None and any(child.returncode for child in children):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > GRACE:
            _end(children)
            return running
        time.sleep(0.05)
    return set()


def _end(children: Sequence[subprocess.Popen[bytes]], grace: float = 0.0) -> None:
    """End processes: after some seconds of grace politely, and two seconds later by force."""
    until = time.monotonic() + grace
    while time.monotonic() < until and any(child.poll() is None for child in children):
        time.sleep(0.05)
    for child in children:
        child.terminate()
    until = time.monotonic() + 2
    for child in children:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def choose_error(statuses: Sequence[int], killed: set[int], known: Mapping[int, Mapping[str, Any]]) -> tuple[str, int]:
    """Choose the error that tells most: of a process that was killed, one of its own, or that others are missing.

    Parameters
    ----------
    statuses : how every process ended, negative: by which signal
    killed : processes that were ended because another failed
    known : what processes told themselves, by rank
    """
    size = len(statuses)
    own = {r: told for r, told in known.items() if told["lost"] is None}
    silent = [r for r, status in enumerate(statuses) if status and r not in known and r not in killed]
    if by_signal := [r for r in silent if statuses[r] < 0]:
        name = signal.Signals(-statuses[by_signal[0]]).name
        memory = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return (
            f"nnfactor: error: rank {by_signal[0]} of {size} was ended by {name}{memory}; the others ended with it",
            1,
        )
    if own:
        rank, told = min(own.items())
        alike = len(own) == size or told["status"] == 2
        line = told["line"].replace("nnfactor: error: ", f"nnfactor: error: rank {rank} of {size}: ", not alike)
        return line, told["status"]
    if silent:
        how = f"ended with status {statuses[silent[0]]}; the others ended with it (--debug shows what it printed)"
        return f"nnfactor: error: rank {silent[0]} of {size} {how}", 1
    told = max(known.values(), key=lambda told: len(told["lost"]))  # some know no names
    return told["line"], told["status"]
