"""A sink whose tables commit one by one: keys that are even go into one table, odd ones into another."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backfill_cli.contracts import EpochCommit
from backfill_cli.errors import Held, StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Marker

from .memory_sink import MemorySink

EVEN, ODD = "even", "odd"
NOTHING = Marker(0, 0, "")


@dataclass
class TwoTables(MemorySink):
    """rows are those of both tables, so they are at a checkpoint only where both markers agree."""

    markers: dict[str, Marker] = field(default_factory=lambda: {EVEN: NOTHING, ODD: NOTHING})

    @property
    def half_way(self) -> bool:
        even, odd = self.markers.values()
        return even.epoch != odd.epoch

    def fence(self, job: str, token: int) -> None:
        if any(marker.token > token for marker in self.markers.values()):
            raise Held("fenced")
        self.markers = {table: replace(marker, token=token) for table, marker in self.markers.items()}

    def committed(self, job: str) -> Mapping[str, Marker]:
        return dict(self.markers)

    def commit(self, commit: EpochCommit) -> None:
        for remainder, table in enumerate((EVEN, ODD)):
            if commit.only is None or table in commit.only:
                self._commit_table(commit, table, remainder)

    def _commit_table(self, commit: EpochCommit, table: str, remainder: int) -> None:
        marker = self.markers[table]
        if (marker.epoch, marker.attempt) == (commit.epoch, commit.attempt):
            return
        if commit.token < marker.token:
            raise Held("an older token")
        if commit.epoch <= marker.epoch or commit.prev_epoch != marker.epoch:
            raise StateConflict(f"epoch {commit.epoch} after {marker.epoch}, prev {commit.prev_epoch}")
        if self.random.random() < 0.05:
            raise Transient("the sink is held by somebody else")
        self.judge(commit.attempt, table)
        inserts, net = self.stager.files[commit.folder]
        rows = self.applied(
            {key: value for key, value in inserts.items() if key % 2 == remainder},
            {key: change for key, change in net.items() if key % 2 == remainder},
        )
        hit("sink-before-commit")
        self.rows, self.markers = rows, self.markers | {table: Marker(commit.epoch, commit.token, commit.attempt)}
        if not self.half_way:
            self.keep(commit.saved.checkpoint)
        hit("sink-after-commit")
