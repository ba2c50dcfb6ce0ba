"""Two lake tables as a sink, in memory: what its commits share, whatever the format.

Numbers, marks, markers, refs and the state beside are the product's own code. What the formats do, and Spark by
them, is in `delta_tables` and `iceberg_tables`. Others write and clean up between any two steps of a commit, and
other runners take the job over.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from backfill_cli.contracts import EpochCommit, SavedJob
from backfill_cli.errors import Transient
from backfill_cli.lake.state import Claim, JobState

from .memory_sink import MemorySink
from .two_tables import EVEN, ODD
from .world import MemoryStager, Rows

JOB = "j"
STRANGERS = 1000
"""Keys from here on are of rows that others write into the job's tables."""


class Files:
    """As lake.blobs.Blobs, in the sink's memory; replaced whole, so that a copied sink keeps its own."""

    def __init__(self, sink: "LakeTables", root: str) -> None:
        self._sink, self.root = sink, root

    def below(self, name: str) -> "Files":
        return Files(self._sink, f"{self.root}/{name}")

    def names(self) -> list[str]:
        start = f"{self.root}/"
        return sorted({path[len(start) :].split("/")[0] for path in self._sink.files if path.startswith(start)})

    def read(self, name: str) -> bytes:
        try:
            return self._sink.files[f"{self.root}/{name}"]
        except KeyError:
            raise FileNotFoundError(name) from None

    def create(self, name: str, content: bytes) -> None:
        path = f"{self.root}/{name}"
        if path in self._sink.files:
            raise FileExistsError(path)
        self._sink.files = {**self._sink.files, path: content}

    def delete(self, name: str) -> None:
        self._sink.files = {path: one for path, one in self._sink.files.items() if path != f"{self.root}/{name}"}


class LakeTables(MemorySink):
    """Even keys in one table, odd ones in another; each commits alone, with a marker of its own in it."""

    tables: Mapping[str, Any]

    def __init__(self, stager: MemoryStager, random: Random) -> None:
        super().__init__(stager, random)
        self.files: dict[str, bytes] = {}
        self.opened: dict[str, Any] = {}
        self.claims = {name: Claim(name, f"claim-{name}") for name in (EVEN, ODD)}
        self.meanwhile: Callable[[str], None] = lambda table: None

    @property
    def rows(self) -> Rows:  # type: ignore[override]
        return self.of_job(EVEN) | self.of_job(ODD)

    @rows.setter
    def rows(self, _: Rows) -> None: ...

    @property
    def state(self) -> JobState:
        return JobState(Files(self, "state"), JOB)  # type: ignore[arg-type]

    @property
    def half_way(self) -> bool:
        return len({marker.epoch for marker in self.committed(JOB).values()}) > 1

    def held(self, table: str) -> Mapping[Any, int]:
        """All rows of a table, others' too."""
        raise NotImplementedError

    def of_job(self, table: str) -> Rows:
        """A table's rows without others'."""
        return {key: value for key, value in self.held(table).items() if key < STRANGERS}

    def stranger(self, table: str) -> None:
        """Somebody else commits a row of their own."""
        raise NotImplementedError

    def clean(self, table: str) -> None:
        """Maintenance takes what no reader of the newest version needs."""

    def restore(self) -> None:
        """What maintenance took is there again."""

    def saved(self, job: str) -> SavedJob | None:
        marker = self.state.at_one_epoch(self.committed(job))
        return None if marker is None else self.state.saved(marker)

    def part(self, commit: EpochCommit, table: str, rows: Mapping[Any, int]) -> tuple[dict[Any, int], set[int]]:
        """The table's rows once the epoch is in, and the keys that it touches."""
        remainder = (EVEN, ODD).index(table)
        if commit.folder not in self.opened:
            raise Transient("staged files are gone")
        inserts, net = self.opened[commit.folder]
        changed = {key: change for key, change in net.items() if key % 2 == remainder}
        added = {key: value for key, value in inserts.items() if key % 2 == remainder}
        left = dict(rows)
        for key, value in added.items():
            assert key not in left, f"snapshot row {key} twice"
            left[key] = value
        for key, (op, value) in changed.items():
            left.pop(key, None)
            if op == "U":
                left[key] = value
        return left, {*added, *changed}

    def one_more(self, commit: EpochCommit) -> None:
        """A table has the epoch: once both have it the sink is at a checkpoint."""
        last = self.checkpoints[-1].epoch if self.checkpoints else 0
        if not self.half_way and last < commit.epoch:
            self.keep(commit.saved.checkpoint)

    def asked(self, commit: EpochCommit) -> Sequence[str]:
        """The tables to commit to. The staged files are open from here on, whoever removes them."""
        if commit.folder in self.stager.files:
            self.opened = {commit.folder: self.stager.files[commit.folder]}
        return [name for name in (EVEN, ODD) if commit.only is None or name in commit.only]

    def may_fail(self, commit: EpochCommit, table: str) -> None:
        if self.random.random() < 0.03:
            raise Transient("the store does not answer")
        self.judge(commit.attempt, table)
