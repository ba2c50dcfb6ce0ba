"""Columns with the names of our own code, from upstream to sink through Spark: as values, and each once in a key.

Written and read by the formats' own libraries; what the rows are after the changes is a dictionary's answer.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from code_names import Row, Table, names, tables
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import In
from pyiceberg.table import StaticTable

from backfill_cli.catalog import Catalog
from backfill_cli.config import from_stored, load
from backfill_cli.contracts import Source
from backfill_cli.engine.loop.run import start
from backfill_cli.engine.verify.fix import fix
from backfill_cli.errors import UsageError
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import Asked, VerifyReport
from oracle.jobs import loaded, reads_of, spooled
from oracle.lake_writers import FEED, Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 9
FILES, LAKE = ("files", "duckdb", "sql"), ("delta", "iceberg", "lake")
IN_FILES = pytest.mark.in_turn("our code's names in files")
IN_A_LAKE = pytest.mark.in_turn("our code's names in a lake")
OF_DELTA = ("_change_type", "_commit_version", "_commit_timestamp")
OF_ICEBERG = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_change_type", "_change_ordinal"),
    *("_commit_snapshot_id", "_row_id", "_last_updated_sequence_number"),
)


def halves(systems: Sequence[str], without: Sequence[str]) -> dict[str, Table]:
    """Two tables, called as our code calls tables: what is the key of one are the values of the other."""
    absent = {"postgres", "kafka", "duckdb", "files", "delta", "iceberg", "lake", "sql"}.difference(systems)
    of = [name for name in names(*absent) if name.lower() not in without]
    half = -(-len(of) // 2)
    return dict(zip(("t", "s"), tables(of, half, half, ROWS), strict=True))


def arrow(table: Table, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema([(name, pa.int32()) for name in table.columns]))


def put(table: Table) -> list[Row]:
    return [after for _, after in table.events() if after is not None]


def gone(table: Table) -> list[int | None]:
    """What the rows that change have in the first column beside the key, where each row has a value of its own."""
    return [before[table.values[0]] for before, _ in table.events() if before is not None]


class Debezium:
    """Parquet files, and a change file of Debezium's envelopes."""

    def __init__(self, folder: Path, of: dict[str, Table]) -> None:
        self.folder, self.of = folder, of
        for name, table in of.items():
            for part in ("snapshot", "changes"):
                (folder / name / part).mkdir(parents=True)
            pq.write_table(arrow(table, table.snapshot()), folder / name / "snapshot" / "0.parquet")
        self.options: dict[str, Any] = {
            "type": "files",
            "snapshot": {"path": f"{folder}/{{table}}/snapshot", "format": "parquet"},
            "changes": {"path": f"{folder}/{{table}}/changes", "format": "debezium"},
        }

    def change(self) -> None:
        for name, table in self.of.items():
            lines = [
                json.dumps({"op": "c" if before is None else "d" if after is None else "u",
                            "before": before, "after": after, "ts_ms": 1, "source": {"table": name}})
                for before, after in table.events()
            ]  # fmt: skip
            (self.folder / name / "changes" / "1.json").write_text("\n".join(lines) + "\n")


class Dms:
    """CSV files, and a change file as DMS writes it. Types by a schema."""

    kind, mark = "csv", {"format": "dms"}

    def __init__(self, folder: Path, of: dict[str, Table]) -> None:
        self.folder, self.of = folder, of
        for name, table in of.items():
            for part, rows in (("snapshot", table.snapshot()), ("changes", [])):
                (folder / name / part).mkdir(parents=True)
                if rows:
                    (folder / name / part / f"0.{self.kind}").write_text(self.written(table, rows))
        ddl = {name: ", ".join(f"`{one}` INT" for one in table.columns) for name, table in of.items()}
        self.options: dict[str, Any] = {
            "type": "files",
            "snapshot": {"path": f"{folder}/{{table}}/snapshot", "format": self.kind, "schema": ddl},
            "changes": {"path": f"{folder}/{{table}}/changes", "file_format": self.kind, **self.mark},
        }

    def written(self, table: Table, rows: Sequence[Row]) -> str:
        lines = [[str(row[name]) if row[name] is not None else "" for name in table.columns] for row in rows]
        return "\n".join(",".join(line) for line in [list(table.columns), *lines]) + "\n"

    def change(self) -> None:
        for name, table in self.of.items():
            cells = [
                ",".join([op, *("" if row[one] is None else str(row[one]) for one in table.columns)])
                for op, row in table.changes()
            ]
            (self.folder / name / "changes" / "1.csv").write_text("\n".join(cells) + "\n")


class Feed(Dms):
    """JSON files, and a change feed as Delta's, in JSON."""

    kind, mark = "json", {"format": "change-feed"}

    def written(self, table: Table, rows: Sequence[dict[str, Any]]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    def change(self) -> None:
        for name, table in self.of.items():
            ops = {"D": "delete", "U": "insert"}
            rows = [
                {**row, "_change_type": ops[op], "_commit_version": version}
                for version, (op, row) in enumerate(table.changes(), 1)
            ]
            (self.folder / name / "changes" / "1.json").write_text(self.written(table, rows))


class Delta:
    """Tables of delta-rs, with a change data feed."""

    def __init__(self, folder: Path, of: dict[str, Table]) -> None:
        self.folder, self.of = folder, of
        for name, table in of.items():
            write_deltalake(str(folder / name), arrow(table, table.snapshot()), configuration=FEED)
        self.options: dict[str, Any] = {"type": "delta", "table": f"{folder}/{{table}}"}

    def change(self) -> None:
        for name, table in self.of.items():
            listed = ", ".join(map(str, gone(table)))
            DeltaTable(str(self.folder / name)).delete(f'"{table.values[0]}" IN ({listed})')
            write_deltalake(str(self.folder / name), arrow(table, put(table)), mode="append")


class Iceberg:
    """Tables of pyiceberg, copied on write."""

    def __init__(self, folder: Path, of: dict[str, Table]) -> None:
        self.of, self.tables = of, {}
        for name, table in of.items():
            rows = arrow(table, table.snapshot())
            self.tables[name] = Folder(folder / name).created(rows.schema)
            self.tables[name].append(rows)
        self.options: dict[str, Any] = {"type": "iceberg", "table": f"{folder}/{{table}}"}

    def change(self) -> None:
        for name, table in self.of.items():
            with self.tables[name].transaction() as both:
                both.delete(In(table.values[0], gone(table)))
                both.append(arrow(table, put(table)))


def plans(change: Callable[[], None]) -> Callable[[Source, Pin], Iterable[EpochPlan]]:
    """The snapshot, then all changes in one window."""

    def of(upstream: Source, pin: Pin) -> Iterable[EpochPlan]:
        yield EpochPlan(reads=reads_of(pin), closes_snapshot=tuple(pin.schema))
        change()
        view = upstream.observe(pin.position, False)
        assert view.pending
        yield EpochPlan(window=ChangeWindow(pin.position, view.latest, 0, 0, len(view.pending), ()))

    return of


def of_duckdb(folder: Path, name: str) -> list[Row]:
    with duckdb.connect(str(folder / "w.duckdb"), read_only=True) as con:
        return con.sql(f'FROM "{name}"').to_arrow_table().to_pylist()


def of_delta(folder: Path, name: str) -> list[Row]:
    return DeltaTable(str(folder / name)).to_pyarrow_table().to_pylist()


def of_iceberg(folder: Path, name: str) -> list[Row]:
    return StaticTable.from_metadata(str(folder / name)).scan().to_arrow().to_pylist()


@pytest.mark.parametrize(
    ("upstream", "sink", "systems", "read", "foreign", "run"),
    [
        pytest.param(Debezium, "duckdb", FILES, of_duckdb, (), loaded, marks=IN_FILES),
        pytest.param(Dms, "duckdb", FILES, of_duckdb, ("op",), loaded, marks=IN_FILES),
        pytest.param(Feed, "duckdb", FILES, of_duckdb, OF_DELTA, spooled, marks=IN_FILES),
        pytest.param(Delta, "iceberg", LAKE, of_iceberg, OF_ICEBERG + OF_DELTA, loaded, marks=IN_A_LAKE),
        pytest.param(Iceberg, "delta", LAKE, of_delta, OF_ICEBERG, loaded, marks=IN_A_LAKE),
    ],
    ids=["Debezium", "DMS in CSV", "a feed in JSON, by a spool", "Delta to Iceberg", "Iceberg to Delta"],
)
def test_no_name_of_our_code_is_taken_for_ours(
    upstream: type[Debezium | Dms | Delta | Iceberg],
    sink: str,
    systems: tuple[str, ...],
    read: Callable[[Path, str], list[Row]],
    foreign: tuple[str, ...],
    run: Callable[..., None],
    spark: "SparkSession",
    tmp_path: Path,
) -> None:
    of = halves(systems, foreign)
    if upstream in (Dms, Feed):  # a table each: all names are its columns, a half of them is its key
        of = {name: table for name, table in of.items() if name == ("t" if upstream is Dms else "s")}
    made = upstream(tmp_path / "in", of)
    into = {"path": str(tmp_path / "w.duckdb")} if sink == "duckdb" else {"table": f"{tmp_path}/{{table}}"}
    config = {
        "job": {"name": "names", "staging": str(tmp_path / "staging")},
        "upstream": made.options,
        "tables": [{"name": name, "key": list(table.key)} for name, table in of.items()],
        "sink": {"type": sink, **into},
    }
    run(config, spark, plans(made.change))
    for name, table in of.items():
        assert table.ordered(read(tmp_path, name)) == table.after()


@pytest.mark.parametrize("name", [*OF_ICEBERG, "_POS"])
def test_a_name_of_icebergs_own_is_refused_before_the_job_begins(name: str, tmp_path: Path) -> None:
    Folder(tmp_path / "t").created(pa.schema([("id", pa.int64()), (name, pa.int64())]))
    with pytest.raises(UsageError, match=f"'{name}' has the name of a column of Iceberg's own") as caught:
        opened({"type": "iceberg", "table": f"{tmp_path}/{{table}}"}).pin()
    assert f"RENAME COLUMN `{name}`" in str(caught.value.hint)


@pytest.mark.parametrize("name", [*OF_DELTA, "_Change_type"])
def test_a_name_of_deltas_change_feed_is_refused_before_the_job_begins(name: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], name: [1]})
    write_deltalake(str(tmp_path / "t"), rows)
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"configuration":{}', f'"configuration":{json.dumps(FEED)}'))
    with pytest.raises(UsageError, match=f"'{name}' has the name of a column of Delta's change feed"):
        opened({"type": "delta", "table": f"{tmp_path}/{{table}}"}).pin()


def opened(upstream: dict[str, Any]) -> Source:
    tables, sink = [{"name": "t", "key": ["id"]}], {"type": "duckdb", "path": "w.duckdb"}
    config = {"job": {"name": "names"}, "upstream": upstream, "tables": tables, "sink": sink}
    return from_stored(json.dumps(config)).open_upstream()


@IN_A_LAKE
def test_a_lake_table_of_our_names_is_compared_and_made_equal(spark: "SparkSession", tmp_path: Path) -> None:
    of = names("upstreams", "spool", "postgres", "kafka", "duckdb", "sql", "iceberg", "formats", "spark")
    table = Table(of[::10], tuple(name for name in of if name not in of[::10]), ROWS)
    (tmp_path / "in").mkdir()
    pq.write_table(arrow(table, table.snapshot()), tmp_path / "in" / "0.parquet")
    (tmp_path / "job.toml").write_text(
        f"""
        job = {{ name = "names", staging = "{tmp_path}/staging" }}
        upstream = {{ type = "files", snapshot = {{ path = "{tmp_path}/in", format = "parquet" }} }}
        tables = [{{ name = "t", key = {json.dumps(table.key)} }}]
        sink = {{ type = "delta", table = "{tmp_path}/{{table}}" }}
        """
    )
    catalog = Catalog(tmp_path / "catalog.duckdb")
    start(load(tmp_path / "job.toml"), catalog, "caught-up", False, None)
    value, held = table.values[0], DeltaTable(str(tmp_path / "t"))
    held.delete(f'"{value}" = 1000')
    held.update({f'"{value}"': "5"}, predicate=f'"{value}" = 2000')
    write_deltalake(str(tmp_path / "t"), arrow(table, [table.moved(3)]), mode="append")
    found = list[VerifyReport]()
    fix("names", catalog, Asked(), lambda *_: None, found.append)
    assert [(one.missing, one.extra, one.changed) for one in found[0].tables] == [(1, 1, 1)]
    assert table.ordered(of_delta(tmp_path, "t")) == table.ordered(table.snapshot())
