"""Keys of every kind in the DuckDB sink: composite in any order, binary, text that differs only in case."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sink_contract import Epochs, schema_json

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.sinks.duckdb import DuckDBOptions, connector
from backfill_cli.sinks.duckdb.sink import DuckDBSink

LINES = SinkTable(
    "lines", "lines", ("line", "order_id"), schema_json(order_id="long", line="string", note="string")
)
BLOBS = SinkTable("blobs", "blobs", ("id",), schema_json(id="binary", name="string"))


@pytest.fixture
def sink(tmp_path: Path) -> DuckDBSink:
    return connector.open(DuckDBOptions(path=str(tmp_path / "w.duckdb")))


def epochs_of(sink: DuckDBSink, folder: Path, table: SinkTable) -> Epochs:
    built = Epochs(folder / "staging", tables=(table,))
    sink.prepare(built.job, built.tables, into_existing=False)
    sink.fence(built.job, built.token)
    return built


def commit(epochs: Epochs, inserts: pa.Table | None = None, changes: pa.Table | None = None) -> EpochCommit:
    """The next epoch with these rows; changes carry `_backfill_op`."""
    made = epochs.next()
    files = {}
    for kind, rows in (("inserts", inserts), ("changes", changes)):
        if rows is not None:
            path = Path(made.folder) / epochs.tables[0].name / kind / "0.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(rows, path)
            files[kind] = (StagedFile(str(path.relative_to(made.folder)), path.stat().st_size),)
    ops = [] if changes is None else changes["_backfill_op"].to_pylist()
    made.staged.tables[epochs.tables[0].name] = StagedTable(  # type: ignore[index]
        inserts=files.get("inserts", ()),
        changes=files.get("changes", ()),
        rows=0 if inserts is None else inserts.num_rows,
        changed=ops.count("U"),
        deleted=ops.count("D"),
    )
    return made


def held(sink: DuckDBSink, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(sink.path), read_only=True) as db:
        return db.execute(query).fetchall()


def test_case_10_key_columns_in_another_order_than_the_rows_meet_their_own(
    sink: DuckDBSink, tmp_path: Path
) -> None:
    epochs = epochs_of(sink, tmp_path, LINES)
    loaded = {"order_id": [1, 1, 2, 2], "line": ["1", "2", "1", "2"], "note": ["a", "b", "c", "d"]}
    sink.commit(commit(epochs, inserts=pa.table(loaded)))
    changed = {"_backfill_op": ["U", "D"], "order_id": [1, 2], "line": ["2", "1"], "note": ["B", None]}
    sink.commit(commit(epochs, changes=pa.table(changed)))

    assert held(sink, "SELECT order_id, line, note FROM lines ORDER BY ALL") == [
        (1, "1", "a"),
        (1, "2", "B"),
        (2, "2", "d"),
    ]


def test_case_12_text_keys_that_differ_in_case_alone_are_two_rows(sink: DuckDBSink, tmp_path: Path) -> None:
    epochs = epochs_of(sink, tmp_path, LINES)
    loaded = {"order_id": [1, 1, 1], "line": ["a", "A", "a "], "note": ["low", "high", "wide"]}
    sink.commit(commit(epochs, inserts=pa.table(loaded)))
    sink.commit(
        commit(epochs, changes=pa.table({"_backfill_op": ["D"], "order_id": [1], "line": ["A"], "note": ["x"]}))
    )

    assert held(sink, "SELECT line, note FROM lines ORDER BY ALL") == [("a", "low"), ("a ", "wide")]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(st.binary(max_size=4), min_size=2, max_size=8))
def test_case_12_binary_keys_are_told_apart_byte_by_byte(
    keys: set[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("binary")
    sink = connector.open(DuckDBOptions(path=str(folder / "w.duckdb")))
    epochs = epochs_of(sink, folder, BLOBS)
    ordered = sorted(keys)
    loaded = pa.table({"id": pa.array(ordered, pa.binary()), "name": [key.hex() for key in ordered]})
    sink.commit(commit(epochs, inserts=loaded))
    gone, changed, *_ = ordered
    new = pa.table(
        {"_backfill_op": ["D", "U"], "id": pa.array([gone, changed], pa.binary()), "name": [None, "new"]}
    )
    sink.commit(commit(epochs, changes=new))

    rows = {changed: "new", **{key: key.hex() for key in ordered[2:]}}
    assert dict(held(sink, "SELECT id, name FROM blobs")) == rows
