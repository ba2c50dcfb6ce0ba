"""What keeping a derived table costs in a lake: its part of a commit ÷ the full SELECT, in Delta or Iceberg.

The cases of benchmarks/derived.py, all in one sink, by its own commits. Those change the tables under them, too,
which is not in the figures. The SELECT alone is written as Parquet files by the same Spark, over the tables as the
commit before left them. At the end the derived tables equal their SELECTs.

    python benchmarks/derived_lake.py [FACTS] [--format iceberg] [--times 3]
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from derived import CASES, DIMENSIONS, GROUPS, Case
from measure import Figure

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable, own
from backfill_cli.lake.derived import bases, ordered
from backfill_cli.lake.sink import LakeSink
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "figures"
FACTS = pa.schema(
    [("id", pa.int64()), ("dimension", pa.int32()), ("amount", pa.int32()), ("price", pa.decimal128(12, 2))]
)
DIMENSION = pa.schema([("id", pa.int32()), ("grp", pa.int32())])
TYPES = {"int64": "long", "int32": "integer", "decimal128(12, 2)": "decimal(12,2)"}
DERIVED = tuple(Derived(f"d{at}", f"d{at}", case.key, case.sql) for at, case in enumerate(CASES))


def facts(ids: pa.Array, more: int = 0) -> pa.Table:
    """more: is added to each amount."""
    mixed = pa.array([one * 7919 % 1_000_003 for one in ids.to_pylist()], pa.int64())
    price = pc.subtract(mixed, pc.multiply(pc.divide(mixed, 100_000), 100_000))
    dimension = pc.subtract(mixed, pc.multiply(pc.divide(mixed, DIMENSIONS), DIMENSIONS))
    amount = pc.add(pc.subtract(mixed, pc.multiply(pc.divide(mixed, 1000), 1000)), more)
    cents = pc.multiply(price.cast(pa.decimal128(19, 0)), pa.scalar("0.01", pa.string()).cast(pa.decimal128(3, 2)))
    columns = [ids, dimension.cast(pa.int32()), amount.cast(pa.int32()), cents.cast(FACTS.field("price").type)]
    return pa.table(columns, schema=FACTS)


def dimensions(ids: pa.Array, more: int = 0) -> pa.Table:
    groups = [(one + more) % GROUPS for one in ids.to_pylist()]
    return pa.table([ids.cast(pa.int32()), pa.array(groups, pa.int32())], schema=DIMENSION)


def a_table(name: str, schema: pa.Schema) -> SinkTable:
    fields = [
        f'{{"name": "{one.name}", "type": "{TYPES[str(one.type)]}", "nullable": true, "metadata": {{}}}}'
        for one in schema
    ]
    return SinkTable(name, name, ("id",), f'{{"type": "struct", "fields": [{", ".join(fields)}]}}')


TABLES = (a_table("facts", FACTS), a_table("dimensions", DIMENSION))


@dataclass
class Epochs:
    """A job's commits one after the other, with files below `folder`."""

    folder: Path
    epoch: int = 0

    def next(self, phase: Phase, derived: tuple[Derived, ...], **rows: StagedTable) -> EpochCommit:
        before, self.epoch = self.epoch, self.epoch + 10
        attempt = f"a{self.epoch}"
        checkpoint = Checkpoint(
            epoch=self.epoch,
            prev_ms=before,
            token=1,
            attempt=attempt,
            state="{}",
            phase=phase,
            position=Position.of({"log": self.epoch}),
            splits={},
            plan=EpochPlan(),
            staged=Staged(attempt),
        )
        return EpochCommit(
            job=JOB,
            epoch=self.epoch,
            prev_epoch=before,
            token=1,
            attempt=attempt,
            tables=TABLES,
            folder=str(self.folder),
            staged=Staged(attempt, rows),
            unique=(),
            saved=SavedJob("{}", checkpoint),
            derived=derived,
        )

    def staged(self, rows: pa.Table, what: str) -> StagedTable:
        """What is `inserts` or `changes`; all of the latter are updates."""
        if what == "changes":
            rows = rows.add_column(0, own.OP, pa.array(["U"] * len(rows)))
        path = f"{self.epoch}-{what}-{len(rows)}.parquet"
        pq.write_table(rows, self.folder / path)
        file = (StagedFile(path, (self.folder / path).stat().st_size),)
        if what == "inserts":
            return StagedTable(inserts=file, rows=len(rows))
        return StagedTable(changes=file, changed=len(rows))


@dataclass
class Found:
    """Seconds, by case. whole: of all that a commit does for derived tables."""

    upkeep: dict[str, list[float]] = field(default_factory=dict)
    full: dict[str, list[float]] = field(default_factory=dict)
    whole: list[float] = field(default_factory=list)


class Measured:
    def __init__(self, sink: LakeSink, folder: Path) -> None:
        self.sink, self.folder = sink, folder
        self.epochs = Epochs(folder)

    def fill(self, count: int) -> dict[str, float]:
        """Seconds that the fill of each takes; the tables have their rows by then."""
        staged = {
            "facts": self.epochs.staged(facts(pa.array(range(count), pa.int64())), "inserts"),
            "dimensions": self.epochs.staged(dimensions(pa.array(range(DIMENSIONS), pa.int64())), "inserts"),
        }
        self.sink.commit(self.epochs.next(Phase.SNAPSHOT, (), **staged))
        self.sink.derives.prepare(JOB, DERIVED, TABLES)
        self.sink.commit(self.epochs.next(Phase.UPSTREAM, DERIVED))
        return {name: ms / 1000 for name, ms in self.sink.derives.took_ms.items()}

    def alone(self, name: str) -> float:
        """Seconds of the SELECT over the tables as they are, its rows written as Parquet files."""
        spark = self.sink.derives.spark
        claims, views = self.sink.claims(JOB), {base.name: base.sql for base in bases(TABLES)}
        for table in TABLES:
            now = self.sink.now(JOB, table.name, claims[table.name])
            assert now is not None
            self.sink.rows(spark, table, claims[table.name], now[0]).createOrReplaceTempView(views[table.name])
        one = next(each for each in ordered(DERIVED, TABLES) if each.derived.name == name)
        begun = time.perf_counter()
        spark.sql(one.text).write.mode("overwrite").parquet(str(self.folder / "alone"))
        return time.perf_counter() - begun

    def change(self, case: Case, count: int, at: int) -> float:
        """Seconds of all that a commit does for derived tables; see `took_ms` for each."""
        size = count if case.table == "facts" else DIMENSIONS
        step = max(1, size // case.changes)
        ids = pa.array(range(at % step, size, step), pa.int64())
        rows = facts(ids, at + 1) if case.table == "facts" else dimensions(ids, at + 1)
        staged = {case.table: self.epochs.staged(rows, "changes")}
        keep, spent = self.sink.derives.keep, [0.0]

        def timed(*given: Any) -> None:
            begun = time.perf_counter()
            keep(*given)
            spent[0] = time.perf_counter() - begun

        self.sink.derives.keep = timed  # type: ignore[method-assign]
        try:
            self.sink.commit(self.epochs.next(Phase.UPSTREAM, DERIVED, **staged))
        finally:
            self.sink.derives.keep = keep  # type: ignore[method-assign]
        return spent[0]

    def require_equal(self) -> None:
        with self.sink.copied(JOB, False, self.folder) as copy:
            for one in DERIVED:
                found = copy.compare(one, DERIVED, TABLES, 5)
                differ = found.missing + found.extra + found.changed
                assert differ == 0, f"{one.name}: {found}"


def opened(kind: str, folder: Path, spark: "SparkSession") -> LakeSink:
    if kind == "delta":
        from backfill_cli.sinks.delta import DeltaOptions, connector

        sink: LakeSink = connector.open(DeltaOptions(table=f"{folder}/{{table}}"))
    else:
        from backfill_cli.sinks import iceberg

        sink = iceberg.connector.open(iceberg.IcebergSinkOptions(table=f"{folder}/{{table}}"))
    sink.use(lambda: spark)
    sink.prepare(JOB, TABLES, into_existing=False)
    sink.fence(JOB, 1)
    return sink


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--times", type=int, default=3)
    told = parser.parse_args()
    from backfill_cli.spark.session import open_session

    spark = open_session("local[*]", {"spark.driver.memory": "3g"}, formats=(told.format,))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run = Measured(opened(told.format, folder / "lake", spark), folder)
        fills = run.fill(told.facts)
        names = [one.name for one in DERIVED]
        for name in names:  # Spark compiles its first plan of each
            run.alone(name)
        first = {name: run.alone(name) for name in names}
        figures = []
        for kind in dict.fromkeys((case.table, case.changes) for case in CASES):
            case = next(one for one in CASES if (one.table, one.changes) == kind)
            found = Found()
            for at in range(told.times + 1):
                fulls = {name: run.alone(name) for name in names}
                spent = run.change(case, told.facts, at)
                if at:  # the first is Spark's own beginning
                    found.whole.append(spent)
                    for name in names:
                        found.upkeep.setdefault(name, []).append(run.sink.derives.took_ms[name] / 1000)
                        found.full.setdefault(name, []).append(fulls[name])
            figures.append(
                _figure(f"{kind[1]:,} {kind[0]} change: all five", "s", statistics.median(found.whole), "")
            )
            for name, one in zip(names, CASES, strict=True):
                if one.table == case.table or one.sql == case.sql:
                    upkeep, full = statistics.median(found.upkeep[name]), statistics.median(found.full[name])
                    note = f"{upkeep:.2f} s ÷ {full:.2f} s"
                    figures.append(_figure(f"{one.name}, {kind[0]}: upkeep ÷ SELECT", "", upkeep / full, note))
        for name, case in zip(names, CASES, strict=True):
            note = f"{fills[name]:.2f} s ÷ {first[name]:.2f} s"
            figures.append(_figure(f"{case.name}: fill ÷ SELECT", "", fills[name] / first[name], note))
        run.require_equal()
    spark.stop()
    sizes = {"facts": told.facts, "dimensions": DIMENSIONS, "groups": GROUPS, "times": told.times}
    measure.report(f"derived-{told.format}", figures, sizes)


def _figure(name: str, unit: str, value: float, note: str) -> Figure:
    return Figure(name, value, unit, "-", True, (), note)


if __name__ == "__main__":
    main()
