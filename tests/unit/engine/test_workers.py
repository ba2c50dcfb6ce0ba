"""Rows that workers produce are written by them: the same rows, counted per read, in the files that count."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.engine.staging import workers
from backfill_cli.engine.staging.files import Footers
from backfill_cli.errors import BadData, Transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127, None]),
    "short": (pa.int16(), [-32768, 32767, None]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [0.5, float("inf"), None]),
    "double": (pa.float64(), [0.1, -0.0, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "string": (pa.string(), ["", "漢 😀", None]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), None]),
    "decimal(18,4)": (pa.decimal128(18, 4), [Decimal("-1.0001"), Decimal("99999999999999.9999"), None]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None, None]),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(1500, 2, 28), dt.datetime(9999, 1, 1, 1, 1, 1, 999999), None],
    ),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 31, 23, 59, 59, 999999, dt.UTC), None, None]),
}
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
)


def alone(what: Any) -> tuple[tuple[Piece, ...], ...]:
    return ((Piece(0, what),),)


def numbers(size: int = 10, width: int = 8) -> Callable[[tuple[int, int]], Iterator[pa.RecordBatch]]:
    """Batches of `size` rows from a range of numbers, with another column of `width` bytes per row."""

    def make(part: tuple[int, int]) -> Iterator[Any]:
        import pyarrow as pa

        for begin in range(*part, size):
            held = list(range(begin, min(begin + size, part[1])))
            yield pa.RecordBatch.from_pydict({"n": held, "w": [b"x" * width] * len(held)})

    return make


def test_what_workers_write_is_what_they_made_for_duckdb_and_for_spark(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def make(part: int) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({name: pa.array(told, kind) for name, (kind, told) in types.items()})

    types = TYPES
    fields = [{"name": name, "type": name, "nullable": True, "metadata": {}} for name in types]
    tasks = ArrowTasks(make, alone(0), json.dumps({"type": "struct", "fields": fields}))
    done = workers.write(spark, tasks, tmp_path / "a", tmp_path)
    path = str(tmp_path / done.files[0].path)
    told = {name: values for name, (_, values) in types.items()}
    assert pq.read_table(path).to_pydict() == told
    assert spark.read.parquet(path).toArrow().to_pydict() == told
    assert tasks.frame(spark).toArrow().to_pydict() == told
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        assert db.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table().to_pydict() == told


def test_rows_are_counted_by_read_and_a_part_without_rows_has_no_file(
    spark: "SparkSession", tmp_path: Path
) -> None:
    pieces = (
        (Piece(0, (0, 25)),),
        (Piece(1, (25, 25)),),
        (Piece(0, (25, 60)), Piece(3, (60, 62))),
        (Piece(2, (62, 63)),),
    )
    tasks = ArrowTasks(numbers(), pieces, SCHEMA)
    done = workers.write(spark, tasks, tmp_path / "t" / "inserts", tmp_path)
    assert done.rows == {0: 60, 1: 0, 2: 1, 3: 2}
    read = [pq.read_table(tmp_path / f.path)["n"].to_pylist() for f in done.files]
    assert read == [list(range(25)), list(range(25, 62)), [62]]
    assert [f.size_bytes for f in done.files] == [(tmp_path / f.path).stat().st_size for f in done.files]
    assert {Path(f.path).parent for f in done.files} == {Path("t/inserts")}
    assert len(list((tmp_path / "t" / "inserts").iterdir())) == 3, "each part is made once"


def test_rows_that_cannot_be_read_are_in_files_of_their_own(spark: "SparkSession", tmp_path: Path) -> None:
    def make(offsets: tuple[int, ...]) -> Iterator[Any]:
        import pyarrow as pa

        faults = ["no number" if offset % 3 == 1 else None for offset in offsets]
        raws = [None if fault is None else b"x%d" % n for n, fault in zip(offsets, faults, strict=True)]
        columns = {
            "_backfill_read": [0] * len(offsets),
            "p": pa.array([7] * len(offsets), pa.int32()),
            "o": offsets,
        }
        marks = {
            "_backfill_error": pa.array(faults, pa.string()),
            "_backfill_raw": pa.array(raws, pa.binary()),
        }
        yield pa.RecordBatch.from_pydict({**columns, **marks, "v": [f"v{n}" for n in offsets]})

    names = {"_backfill_read": "integer", "p": "integer", "o": "long", "_backfill_error": "string"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in names.items()]
    parts = ((Piece(0, (3, 4, 5)),), (Piece(1, (0, 1)), Piece(2, (2,))), (Piece(2, (6,)),))
    tasks = ArrowTasks(make, parts, json.dumps({"type": "struct", "fields": fields}))
    done = workers.write(spark, tasks, tmp_path / "t" / "i", tmp_path, ("o",), tmp_path / "t.bad", ("p", "o"))
    assert (done.rows, done.found.rows, done.bad) == ({0: 3, 1: 2, 2: 2}, 5, 2)
    assert done.first == (7, 1, "no number")
    rows = [row for file in done.files for row in pq.read_table(tmp_path / file.path).to_pylist()]
    assert rows == [{"p": 7, "o": n, "v": f"v{n}"} for n in (3, 5, 0, 2, 6)]
    apart = [row for file in done.apart for row in pq.read_table(tmp_path / file.path).to_pylist()]
    assert apart == [{"p": 7, "o": n, "value": b"x%d" % n, "reason": "no number"} for n in (4, 1)]


@given(
    st.lists(st.tuples(st.sampled_from("UD"), st.integers(0, 3), st.booleans()), max_size=12), st.integers(1, 3)
)
def test_a_part_of_a_log_is_netted_or_says_that_it_is_not(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[str, int, bool]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("part")
    kind = pa.struct([("line", pa.int64()), ("reason", pa.string())])
    rows = [
        {
            "_backfill_op": op,
            "_backfill_seq": n,
            "_backfill_ms": 1,
            "_backfill_quarantined": {"line": n, "reason": "no"} if bad else None,
            "k": key,
        }
        for n, (op, key, bad) in enumerate(log)
    ]
    names = {"_backfill_op": pa.string(), "_backfill_seq": pa.int64(), "_backfill_ms": pa.int64()}
    schema = pa.schema({**names, "_backfill_quarantined": kind, "k": pa.int32()})

    def make(at: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(rows[at : at + size], schema)

    pieces = tuple(Piece(0, at) for at in range(0, len(rows), size))
    one = workers.LogTasks(ArrowTasks(make, (pieces,), "{}"), ("k",), folder / "net", folder / "apart")
    for path in (one.path, one.apart):
        path.mkdir()
    for most in (1 << 20, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workers, "NET_BYTES", most)
            told = workers._net(None, (0, ("t", 0, True, one)))
        good = [(n, op, key) for n, (op, key, bad) in enumerate(log) if not bad]
        written = [] if told["name"] is None else pq.read_table(one.path / told["name"]).to_pylist()
        last = {key: (op, key) for _, op, key in good}
        assert {row["k"]: (row["_backfill_op"], row["k"]) for row in written} == last
        assert told["whole"] == (most > 1 or len({n // size for n, _, _ in good}) < 2)
        assert not told["whole"] or len(written) == len(last)
        assert ("_backfill_seq" in (written or [{}])[0]) == (not told["whole"] and bool(written))
        assert (told["changes"], told["changed"] + told["deleted"]) == (len(good), len(written))
        assert told["changed"] == sum(row["_backfill_op"] == "U" for row in written)
        apart = [] if told["apart"] is None else pq.read_table(one.apart / told["apart"]).to_pylist()
        assert apart == [{"line": n, "reason": "no"} for n, (_, _, bad) in enumerate(log) if bad]


def test_nothing_to_make_is_no_file_and_no_row(spark: "SparkSession", tmp_path: Path) -> None:
    nothing = ArrowTasks(numbers(), (), SCHEMA)
    assert workers.write(spark, nothing, tmp_path / "a", tmp_path) == workers.Written((), {}, Footers(0, {}))
    assert nothing.frame(spark).toArrow().num_rows == 0


def test_a_file_of_another_attempt_is_no_part_of_what_was_written(spark: "SparkSession", tmp_path: Path) -> None:
    tasks = ArrowTasks(numbers(), alone((0, 5)), SCHEMA)
    first = workers.write(spark, tasks, tmp_path / "a", tmp_path)
    again = workers.write(spark, tasks, tmp_path / "a", tmp_path)
    assert len(again.files) == 1
    assert first.files[0].path != again.files[0].path


def test_a_row_group_is_no_more_than_a_task_can_hold(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_GROUP_BYTES", 50_000)
    monkeypatch.setattr(workers, "_GROUP_ROWS", 400)
    wide = workers._write(numbers(10, 1_000), str(tmp_path), "", (), None, (0, (Piece(0, (0, 100)),)))
    thin = workers._write(numbers(10, 1), str(tmp_path), "", (), None, (1, (Piece(0, (0, 1_000)),)))
    wide_file, thin_file = wide["name"], thin["name"]
    assert [rows_of_group(tmp_path / wide_file, i) for i in range(3)] == [40, 40, 20]
    assert [rows_of_group(tmp_path / thin_file, i) for i in range(3)] == [400, 400, 200]


def rows_of_group(path: Path, index: int) -> int:
    return int(pq.ParquetFile(path).metadata.row_group(index).num_rows)


def test_an_error_of_ours_in_a_worker_reaches_the_driver_as_text(spark: "SparkSession", tmp_path: Path) -> None:
    def make(part: int) -> Iterator[Any]:
        raise Transient("the broker is silent", "start it")
        yield

    with pytest.raises(Exception, match=r"\[Transient:Transient\] the broker is silent :try .*start it.* :end"):
        workers.write(spark, ArrowTasks(make, alone(0), SCHEMA), tmp_path / "a", tmp_path)


def test_a_folder_that_cannot_be_made_is_transient(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(Transient, match=r"staging folder .*/a/b: Not a directory"):
        workers.write(spark, ArrowTasks(numbers(), alone((0, 1)), SCHEMA), tmp_path / "a" / "b", tmp_path)


def test_a_disk_that_is_full_is_told_by_the_worker_that_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(Transient, match=r"staging file .*No space left on device") as refused:
        workers._write(numbers(), str(tmp_path), "", (), None, (0, (Piece(0, (0, 10)),)))
    with typed(refused.value) as hint:
        hint.says("free disk space there, or change job.staging")
        monkeypatch.undo()
        assert workers._write(numbers(), str(tmp_path), "", (), None, (0, (Piece(0, (0, 10)),)))


def test_columns_whose_paths_are_alike_and_nested_ones_are_written(tmp_path: Path) -> None:
    held = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([{"b": "x"}] * 1000, pa.struct([("b", pa.string())])),
            "a.b": pa.array(range(1000), pa.int64()),
            "l": pa.array([["red"]] * 1000, pa.list_(pa.string())),
            "m": pa.array([[("k", 1)]] * 1000, pa.map_(pa.string(), pa.int64())),
        }
    )
    file = workers.File(str(tmp_path), "f")
    file.add(held)
    assert file.close() == "f"
    assert pq.read_table(tmp_path / "f").to_pylist() == held.to_pylist()
    footer = pq.read_metadata(tmp_path / "f").row_group(0)
    encodings = {
        footer.column(i).path_in_schema: set(footer.column(i).encodings) for i in range(footer.num_columns)
    }
    assert "RLE_DICTIONARY" in encodings["l.list.element"]
    assert "DELTA_BINARY_PACKED" in encodings["m.key_value.value"]


def not_utf8(values: list[bytes]) -> pa.Array:
    """What pyarrow returns for such a Parquet file: unchecked text."""
    held = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(held), held.buffers())


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (
            not_utf8([b"ok"] * 5 + [b"\xed\xa0\x80"] + [b"\xff"] * 4),
            r"column 'v': text that is not UTF-8: 0xEDA080",
        ),
        (
            pa.ListArray.from_arrays(pa.array(range(11), pa.int32()), not_utf8([b""] * 5 + [b"\xff"] * 5)),
            "column 'v': .*",
        ),
        (
            pa.Array.from_buffers(
                pa.decimal128(5, 2),
                10,
                [None, pa.py_buffer(b"".join((n // 5 * 10**9).to_bytes(16, "little") for n in range(10)))],
            ),
            "column 'v': .*",
        ),
    ],
    ids=["text", "text in arrays", "digits of a decimal"],
)
def test_a_value_that_its_type_cannot_have_is_named_and_never_staged(
    tmp_path: Path, column: pa.Array, said: str
) -> None:
    def make(what: str) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": range(3), "v": column.slice(0, 3)})
        yield pa.RecordBatch.from_pydict({"n": range(7), "v": column.slice(3, 7)})

    with pytest.raises(BadData, match=f"orders.parquet, row 6 of it: {said}"):
        workers._write(make, str(tmp_path), "", (), None, (0, (Piece(0, "orders.parquet"),)))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_a_timestamp_that_duckdb_would_keep_and_could_not_show_is_refused(
    spark: "SparkSession", tmp_path: Path, kind: pa.DataType
) -> None:
    def make(us: int) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"at": pa.array([0, us], pa.int64()).cast(kind)})

    first = -9_223_372_022_400_000_000
    for index, us in enumerate((first, -(2**63) + 1, 2**63 - 1)):
        done = workers.write(spark, ArrowTasks(make, alone(us), SCHEMA), tmp_path / "t" / f"a{index}", tmp_path)
        with duckdb.connect() as db:
            path = tmp_path / done.files[0].path
            shown = db.sql(
                f"SELECT count(*) FROM read_parquet('{path}') WHERE CAST(\"at\" AS VARCHAR) <> ''"
            ).fetchall()
            assert shown == [(2,)]
    for us in (first - 1, -(2**63), -(2**63) + 2):
        with pytest.raises(
            BadData, match=r"table 't': column 'at' holds a timestamp of -9223372.* before the year 290309 BC"
        ) as refused:
            workers.write(spark, ArrowTasks(make, alone(us), SCHEMA), tmp_path / "t" / f"b{us}", tmp_path)
    with typed(refused.value) as hint:
        hint.says("correct it upstream")
        workers.write(spark, ArrowTasks(make, alone(first), SCHEMA), tmp_path / "t" / "corrected", tmp_path)
