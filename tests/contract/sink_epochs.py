"""Commits and staged files for the contract of sinks, written with pyarrow: no Spark is needed."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import EpochCommit, SavedJob, Sink, SinkTable
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.committing import Committing
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress

Row = dict[str, Any]
Read = Callable[[str], list[Row]]
"""target -> its rows, ordered by `id`"""

ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])
CHANGE = pa.schema([("_backfill_op", pa.string()), *ROW])
UNSENT = pa.field("_backfill_unsent", pa.list_(pa.string()))


def schema_json(**columns: str) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def a_table(name: str = "orders", target: str | None = None, **changes: Any) -> SinkTable:
    table = SinkTable(name, target or name, ("id",), schema_json(id="long", name="string"))
    return replace(table, **changes)


def rows(*pairs: tuple[int, str]) -> list[Row]:
    return [{"id": key, "name": name} for key, name in pairs]


@dataclass
class Epochs:
    """Builds a job's commits one after the other, each with its staged files below `folder`."""

    folder: Path
    job: str = "orders"
    token: int = 1
    tables: tuple[SinkTable, ...] = field(default_factory=lambda: (a_table(),))
    epoch: int = 0

    def next(
        self,
        inserts: Sequence[Row] = (),
        upserts: Sequence[Row] = (),
        deletes: Sequence[int] = (),
        unique: tuple[str, ...] = (),
        splits: dict[tuple[str, str], SplitProgress] | None = None,
        of: str | None = None,
        definition: str = '{"pin": 1}',
        truncated: bool = False,
    ) -> EpochCommit:
        """The commit after the last one built, with rows for one table (`of`, the first if not given)."""
        prev, self.epoch = self.epoch, self.epoch + 10
        attempt = f"a{self.epoch}"
        folder = self.folder / self.job / f"{self.epoch}-{attempt}"
        staged = stage(folder, of or self.tables[0].name, inserts, upserts, deletes)
        staged = replace(staged, truncated=truncated)
        checkpoint = Checkpoint(
            epoch=self.epoch,
            prev_ms=prev,
            token=self.token,
            attempt=attempt,
            state=f'{{"epoch": {self.epoch}}}',
            phase=Phase.SNAPSHOT,
            position=Position.of({"log": self.epoch}),
            splits=splits or {},
            plan=EpochPlan(),
            staged=Staged(attempt),
        )
        return EpochCommit(
            job=self.job,
            epoch=self.epoch,
            prev_epoch=prev,
            token=self.token,
            attempt=attempt,
            tables=self.tables,
            folder=str(folder),
            staged=Staged(attempt, {of or self.tables[0].name: staged}),
            unique=unique,
            saved=SavedJob(definition, checkpoint),
            tell=(watched := Watched()).note,
            holds=watched.holds,
        )


class Watched:
    """Who asks how far a commit is, as the run of a job does: something of this process that cannot be pickled."""

    def __init__(self) -> None:
        self._turn, self.seen = threading.Lock(), list[Committing]()

    def note(self, at: Committing) -> None:
        with self._turn:
            self.seen.append(at)

    def holds(self) -> bool:
        return False


def stage(
    folder: Path, table: str, inserts: Sequence[Row], upserts: Sequence[Row], deletes: Sequence[int]
) -> StagedTable:
    """Files as the engine stages them: inserts, and changes net by key, in which a delete has only its key.

    An upsert can name columns that it leaves as they are: `_backfill_unsent`.
    """
    changes = [{"_backfill_op": "U", **row} for row in upserts] + [
        {"_backfill_op": "D", "id": key} for key in deletes
    ]
    partial = tuple(sorted({name for row in upserts for name in row.get("_backfill_unsent") or ()}))
    return StagedTable(
        partial=partial,
        inserts=written(folder, f"{table}/inserts/0.parquet", inserts, ROW),
        changes=written(
            folder, f"{table}/changes/0.parquet", changes, CHANGE.append(UNSENT) if partial else CHANGE
        ),
        rows=len(inserts),
        changed=len(upserts),
        deleted=len(deletes),
    )


def written(folder: Path, path: str, data: Sequence[Row], schema: pa.Schema) -> tuple[StagedFile, ...]:
    """A staged file below `folder`; none if there are no rows."""
    if not data:
        return ()
    (folder / path).parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(data), schema), folder / path)
    return (StagedFile(path, (folder / path).stat().st_size),)


def require_partial(sink: Sink) -> None:
    if not sink.capabilities.partial:
        pytest.skip("this sink says that it takes no partial changes and no truncates")
