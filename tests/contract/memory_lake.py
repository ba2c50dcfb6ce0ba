"""A lake in memory, with a version of each table for each commit: what derived tables ask of one, without files.

Rows are applied in plain Python, which shares nothing with the MERGE of a format.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from one_task import in_one_task
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.formats.frames import struct_type
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.sink import LakeSink
from backfill_cli.lake.state import Claim, JobRecord
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.schema import Columns, columns_of, names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]


@dataclass
class Held:
    """A table: its schema, the rows of each version, and the marker of each."""

    table: SinkTable
    versions: list[Rows] = field(default_factory=lambda: [[]])
    markers: list[tuple[str, Marker]] = field(default_factory=list)


class MemoryLake(LakeSink):
    holder = "memory"

    def __init__(self, folder: Path, spark: "SparkSession") -> None:
        super().__init__()
        self.tables: dict[str, Held] = {}
        self._blobs = Blobs(LocalFileSystem(), str(folder))
        self.use(lambda: spark)
        in_one_task(self)

    def _folder(self) -> Blobs:
        return self._blobs

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        for table in tables:
            self.tables.setdefault(table.target, Held(table, markers=[("", Marker(0, 0, ""))]))
        new = [one for one in tables if one.name not in self.claims(job)]
        claims = {one.name: Claim(one.target, f"c-{one.name}") for one in new}
        if claims:
            self._state(job).change(lambda known: JobRecord(job, {**known.claims, **claims}))

    def _marker(self, record: JobRecord, table: str, claim: Claim) -> Marker | None:
        found = self.now(record.job, table, claim)
        return None if found is None else found[1]

    def now(self, job: str, table: str, claim: Claim) -> tuple[int | None, Marker] | None:
        held = self.tables.get(claim.place)
        if held is None:
            return None
        id_, marker = held.markers[-1]
        return len(held.versions) - 1, marker if id_ in ("", claim.id) else Marker(0, 0, "")

    def commit_table(self, commit: EpochCommit, table: SinkTable, claim: Claim) -> None:
        held, staged = self.tables[claim.place], commit.staged.tables.get(table.name)
        if held.markers[-1][1].epoch == commit.epoch:
            return
        names = names_of(table.schema)
        rows = [] if staged is not None and staged.truncated else list(held.versions[-1])

        def of(files: Sequence[Any]) -> Rows:
            return [row for one in files for row in pq.read_table(Path(commit.folder, one.path)).to_pylist()]

        for row in of(staged.inserts) if staged is not None else []:
            rows.append({name: row[name] for name in names})
        for row in of(staged.changes) if staged is not None else []:
            key = [row[name] for name in table.key]
            met = [one for one in rows if [one[name] for name in table.key] == key]
            assert row["_backfill_op"] == "U" or not table.derived or len(met) == 1, "a row that was not there"
            rows = [one for one in rows if one not in met]
            if row["_backfill_op"] == "U":
                rows.append({name: row[name] for name in names})
        held.versions.append(rows)
        held.markers.append((claim.id, Marker(commit.epoch, commit.token, commit.attempt)))

    def rows(
        self,
        spark: "SparkSession",
        table: SinkTable,
        claim: Claim,
        version: int | None,
        files: Collection[str] | None = None,
    ) -> "DataFrame":
        held = self.tables[claim.place].versions[version or 0]
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = struct_type(columns_of(table.schema))
        return spark.createDataFrame(pa.Table.from_pylist(held, to_arrow_schema(schema)), schema)

    def fault(self, claim: Claim, version: int | None) -> BackfillError | None:
        return None

    def columns_at(self, table: SinkTable) -> Columns | None:
        held = self.tables.get(table.target)
        return None if held is None else columns_of(held.table.schema)

    def has_rows(self, table: SinkTable) -> bool:
        return bool(self.tables[table.target].versions[-1])

    def claim_at(self, table: SinkTable) -> Claim:
        return Claim(table.target, "")

    def refuse_other_job(self, job: str, table: SinkTable) -> None:
        """Nobody else is here."""

    def moved(self, job: str, claim: Claim, since: int | None, now: int | None) -> frozenset[str] | None:
        return frozenset()

    def begin(self, job: str, table: str, claim: Claim) -> None:
        """A table without a marker is at epoch 0."""

    def fence(self, job: str, token: int) -> None: ...

    def drop(self, tables: Sequence[SinkTable]) -> None: ...

    def forget(self, job: str) -> None: ...
