"""Waiting for other processes: a limit for every message, and who is missing when it does not come."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch.distributed as dist

LIMIT = 60.0  # seconds that a process waits for others, unless the timeout of their group is shorter

PERIOD = 1.0  # seconds between two signs of life, at most

WINDOW = 3  # periods within which a process that runs gives a sign of life

Sign = tuple[int, int, bool]  # signs of life so far, messages so far, and whether the process waits in the newest one


class LostProcess(RuntimeError):
    """Other processes ended or did not answer; the message names them.

    Attributes
    ----------
    ranks : list of int
        Who is missing, as far as it is known.
    """

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


class Watch:
    """A group of the same processes whose messages come within a limit, and signs of life by which lost ones are known.

    A message that does not come says only that somebody is missing. A thread of every process writes to the store of
    the group, about once a second, how many messages the process has reached; whoever is behind when a message fails
    is missing. The first process that finds this writes it for all others.

    Parameters
    ----------
    group : process group of `torch.distributed`; all its processes must make the watch at the same time
    """

    def __init__(self, group: Any) -> None:
        self.given, self.limit = group, min(LIMIT, _timeout_of(group))
        self.period = min(PERIOD, self.limit / (4 * WINDOW))
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.wait = self.limit - WINDOW * self.period  # then there is time to find who is missing
        members, kinds = dist.get_process_group_ranks(group), dist.get_backend_config(group)
        self.first = members[0]  # as all processes know it
        self.group = dist.new_group(members, timedelta(seconds=self.wait), kinds, use_local_synchronization=True)
        name = [str(uuid4())]  # of no watch before this one, in the same store
        dist.broadcast_object_list(name, self.first, self.group)
        self.store = dist.PrefixStore(f"nnfactor/{name[0]}", dist.distributed_c10d._get_default_store())
        self.meetings = 0
        self.signs, self.place = 0, (0, False)  # written by one thread each
        self.verdict: dict[str, list[int]] | None = None
        self._tell()
        threading.Thread(target=self._live, name="nnfactor-watch", daemon=True).start()

    @property
    def is_valid(self) -> bool:
        """Tell whether the group was not destroyed since."""
        return dist.is_initialized() and self.group in dist.distributed_c10d._world.pg_map

    def exchange(self, send: Callable[[Any], Any]) -> None:
        """Send a message in the group, which is handed in, and wait for those of the others.

        Raises
        ------
        LostProcess
            Not all have come.
        """
        self.place, begun = (self.place[0] + 1, True), time.monotonic()
        try:
            send(self.group)
        except RuntimeError as error:
            is_late = time.monotonic() - begun > 0.99 * self.wait
            raise self._explain(error, lambda: self._find_missing(is_late)) from error
        self.place = self.place[0], False

    def tell_all(self, told: list[Any]) -> None:
        """Send what the first process has in a list; the others wait for it as long as their own group does."""
        with _meeting(self.given):
            dist.broadcast_object_list(told, self.first, self.given)

    def meet(self) -> None:
        """Wait until all processes are here, however long they compute, as long as they give signs of life.

        Raises
        ------
        LostProcess
            One has given none within the limit.
        """
        self.meetings += 1
        here = [f"meeting {self.meetings}, {rank}" for rank in range(self.size)]
        newest: dict[int, tuple[int, float]] = {}  # the last sign, and when it was seen to be new
        lost: list[int] = []
        try:
            self.store.set(here[self.rank], "")
            while not self.store.check(here):
                now = time.monotonic()
                for rank, sign in enumerate(self._read_signs()):
                    if rank not in newest or newest[rank][0] != sign[0]:
                        newest[rank] = sign[0], now
                lost = [
                    r for r in range(self.size) if now - newest[r][1] > self.wait and not self.store.check([here[r]])
                ]
                if lost or self.verdict is not None:
                    raise RuntimeError("no sign of life")
                time.sleep(self.period / 4)
        except RuntimeError as error:
            raise self._explain(error, lambda: {"ended": lost, "silent": []}) from error

    def _tell(self) -> None:
        """Give a sign of life."""
        self.signs += 1
        self.store.set(f"{self.rank}", json.dumps([self.signs, *self.place]))

    def _live(self) -> None:
        """Give signs of life until the group or its store ends, and learn what others have found."""
        try:
            while self.is_valid:
                self._tell()
                self._learn()
                time.sleep(self.period)
        except RuntimeError:  # the store has ended
            return

    def _learn(self) -> None:
        """Read what others have found, and tell them that it was read."""
        if self.verdict is None and self.store.check(["verdict"]):
            self.verdict = json.loads(self.store.get("verdict"))
            self.store.set(f"read {self.rank}", "")

    def _read_signs(self) -> list[Sign]:
        """Read the newest signs of all processes, in the order of the ranks."""
        names = [f"{rank}" for rank in range(self.size)]
        return [json.loads(self.store.get(name)) if self.store.check([name]) else (0, 0, False) for name in names]

    def _explain(self, error: RuntimeError, find: Callable[[], dict[str, list[int]]]) -> LostProcess:
        """Find who is missing, agree on it with the others, and say it."""
        try:
            if self.verdict is None:
                self.store.compare_set("verdict", "", json.dumps(find()))
                self._learn()
            self._wait_for_readers()
        except RuntimeError:  # the store has ended: it was in the first process, unless torchrun keeps it
            self.verdict = self.verdict or {"ended": [0], "silent": []}
        assert self.verdict is not None
        ranks = sorted(self.verdict["ended"] + self.verdict["silent"])
        if not ranks:
            return LostProcess(f"the {self.size} processes lost their connection ({error}); nothing was fitted", ranks)
        ended, silent = (_name(self.verdict[kind], self.size) for kind in ("ended", "silent"))
        told = [f"{ended} ended"] if ended else []
        told += [f"{silent} did not answer within {self.limit:g} s"] if silent else []
        waited = f"while the others waited for {'it' if len(ranks) == 1 else 'them'}"
        return LostProcess(f"{' and '.join(told)} {waited}; nothing was fitted. What it printed itself says why", ranks)

    def _find_missing(self, is_late: bool) -> dict[str, list[int]]:
        """List the processes that have not come to the message in which this one waits.

        A message that fails early does so because a process has ended: others may compute still, and give signs of
        life. Who is behind when the limit is over is silent, whatever it does.
        """
        first, reached = self._read_signs(), self.place[0]
        until = time.monotonic() + WINDOW * self.period
        while time.monotonic() < until:  # a sign may be a period old
            time.sleep(self.period / 4)
            now = self._read_signs()
        here = lambda sign: sign[1] > reached or (sign[1] == reached and sign[2])
        behind = [rank for rank, sign in enumerate(now) if rank != self.rank and not here(sign)]
        still = [rank for rank in behind if now[rank][0] == first[rank][0]]
        return {"ended": [], "silent": behind} if is_late else {"ended": still or behind, "silent": []}

    def _wait_for_readers(self) -> None:
        """Let the others learn what was found before this process ends: the store may end with it."""
        assert self.verdict is not None
        others = [f"read {rank}" for rank in range(self.size) if rank not in self.verdict["ended"]]
        until = time.monotonic() + WINDOW * self.period
        while time.monotonic() < until and not self.store.check(others):
            time.sleep(self.period / 4)


WATCHES: dict[Any, Watch] = {}


@contextmanager
def _meeting(group: Any) -> Iterator[None]:
    """Say what it means if not all processes come to where one of them may need long."""
    try:
        yield
    except RuntimeError as error:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        raise LostProcess(
            f"rank {rank} of {size}: another process ended, or did not come to this point within the timeout of the "
            f"process group ({error})",
            [],
        ) from error


def watch(group: Any) -> Watch:
    """Return the watch over a group, one for all data, when all processes have asked for it.

    Reading may take long, and longer here than there: the timeout of the group itself is for that, not the limit.
    """
    with _meeting(group):
        dist.barrier(group)
    if group not in WATCHES or not WATCHES[group].is_valid:
        WATCHES[group] = Watch(group)
    return WATCHES[group]


def _timeout_of(group: Any) -> float:
    """Read the timeout of a group, in seconds; torch keeps it with the backends."""
    found = LIMIT
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        found = min(found, timeout.total_seconds()) if timeout else found
    return found


def _name(ranks: list[int], size: int) -> str:
    """Name ranks: `rank 2 of 4`, `ranks 1 and 2 of 4`."""
    if not ranks:
        return ""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last} of {size}" if most else f"rank {last} of {size}"
