"""Whose process is which: what the lines of one invocation tell of their writers by pid and tag.

The lanes note it line by line (engine.lanes, whose base it is: a part would cost a look-up at each line). Asked by
`engine.runs` and, of the kernel's words, by `engine.assemble`. It must not know of tracebacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_PIDS = 4096


@dataclass(slots=True)
class Writers:
    """The processes of one invocation."""

    _ranks: dict[int, str | None] = field(default_factory=dict)  # None: several ranks write under this pid
    _pids: set[int] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    front: int | None = None  # the process that takes the requests: it has no rank's work
    _tasks: set[str] = field(default_factory=set)  # the numbers that a launcher gave its processes
    _others: set[str] = field(default_factory=set)  # those of them under which another rank writes
    _fronted: int = 0  # so many processes were known when it was met

    def rank_of(self, pid: int | None) -> str | None:
        return self._ranks.get(pid) if pid is not None else None

    def task(self, number: str, rank: str | None) -> str | None:
        """The rank of a line that a launcher (mpirun, srun) numbered, torch's way where the line itself names none. It
        starts one process a rank, or one a node: that one writes for other ranks than its number says."""
        if len(self._tasks) < 4096:
            self._tasks.add(number)
            if rank not in (None, f"TP{number}") and not rank.startswith("rank"):
                self._others.add(number)
        alone = number == "0" and len(self._tasks) == 1  # the front end and all it started
        return rank if rank is not None or alone or number in self._others else f"rank{number}"

    def shared(self, pid: int | None) -> bool:
        """Several ranks write under it and under no other: a container engine's."""
        return len(self._ranks) == 1 and self._ranks.get(pid, "") is None if pid is not None else False

    def own(self, pid: int | None) -> bool:
        """Whether it is known for one rank's process, which takes no requests."""
        return self.front is not None and pid != self.front and self.rank_of(pid) is not None

    def fronted(self, pid: int | None, rank: str | None) -> bool:
        """The process that takes the requests writes under a rank's tag."""
        return rank is not None and pid is not None and pid == self.front

    def foreign(self, pid: int | None, rank: str | None) -> bool:
        """It does so under the tag of a rank that has a process of its own."""
        if not self.fronted(pid, rank):
            return False
        return any(other != pid and name == rank for other, name in self._ranks.items())

    def knows(self, pid: int) -> bool:
        return pid in self._pids

    def meet(self, pid: int | None) -> None:
        """The process that takes the requests is this."""
        self.front, self._fronted = pid, len(self._pids)

    def recall(self, front: int | None) -> None:
        """Another process met it. Which others there are is not known: who wrote since are not all."""
        self.front, self._fronted = front, MAX_PIDS

    @property
    def apart(self) -> bool:
        """Its processes were seen to start, each under a pid of its own: one that is not known is not its."""
        return self.front is not None and len(self._pids) > self._fronted

    def tag(self, pid: int | None, rank: str | None) -> str | None:
        """The rank as SGLang names it: torch's 'rank3' is TP3 where there are such ranks."""
        if rank is not None and not rank.startswith("rank"):
            return rank
        known = self.rank_of(pid) if not self.foreign(pid, self.rank_of(pid)) else None
        if known is None and rank is not None and f"TP{rank[4:]}" in self.tags:
            known = f"TP{rank[4:]}"
        return known or rank
