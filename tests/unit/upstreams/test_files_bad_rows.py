"""Each kind of bad row in each format: quarantined with its place, or else on the documented list of what stops.

What workers would run is run in this process, as the upstream asks Spark for it.
"""

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BadData
from backfill_cli.formats.listing import Listing, place
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import field
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.changes.marked_rows import Ops
from backfill_cli.upstreams.files.reading import parquet_rows, text_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id BIGINT, v INT, s STRING"
STOPPED = re.sub(
    r"\s+",
    " ",
    (Path(__file__).parents[3] / "docs/files.md").read_text("utf-8").partition("stop the job in any case")[2],
)


class Session:
    """As much of one as is asked before rows are read."""

    class conf:
        @staticmethod
        def get(name: str, default: Any = None) -> Any:
            return {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}.get(name, default)


class Asked(Exception):
    """What workers are asked for."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = batches


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers would do is done at once."""

    def of_tasks(_: Any, tasks: Any, make: Any, rows: Any) -> Any:
        raise Asked([batch for pieces in tasks for batch in make(pieces)])

    monkeypatch.setattr(text_rows, "of_tasks", of_tasks)


class Format:
    """Files of one format at one place. good: a row with this key. bad: rows, by what is wrong with them."""

    name: str
    changes: dict[str, Any] | None = None
    snapshot: ClassVar[dict[str, Any]] = {"format": "csv", "schema": DDL}
    place = "line"

    def good(self, key: int) -> Any: ...

    def bad(self) -> dict[str, Any]: ...

    def write(self, folder: Path, rows: Sequence[Any]) -> None: ...

    def reasons(self) -> dict[str, str]:
        return {}


REASONS = {
    "NULL key": "column 'id': the key is NULL",
    "bad value": "column 'v': not",
    "out of range": "column 'v': out of range for",
    "cut short": "cut short: not a complete JSON object",
    "fields": "expected",
    "bytes": "not UTF-8 text",
    "member twice": 'the name "v" occurs twice',
    "op": "unknown",
    "no version": "_commit_version",
    "column missing": "'s'",
}


class Csv(Format):
    name, first = "csv", ""

    def good(self, key: int) -> bytes:
        return f"{self.first}{key},{key},a".encode()

    def bad(self) -> dict[str, bytes]:
        rows = {
            "NULL key": b",2,a",
            "bad value": b"2,x,a",
            "out of range": b"2,2147483648,a",
            "fields": b"2,2",
            "bytes": b"2,2,\xff",
        }
        return {kind: self.first.encode() + row for kind, row in rows.items()} | self.bad_op()

    def bad_op(self) -> dict[str, bytes]:
        return {}

    def header(self) -> bytes:
        return b"id,v,s\n"

    def write(self, folder: Path, rows: Sequence[bytes]) -> None:
        (folder / "f.csv").write_bytes(self.header() + b"\n".join(rows) + b"\n")

    lines_before = 1


class DmsCsv(Csv):
    name, first, lines_before = "dms csv", "U,", 0
    changes: ClassVar[dict[str, Any]] = {"format": "dms"}

    def bad_op(self) -> dict[str, bytes]:
        return {"op": b"X,2,2,a"}

    def header(self) -> bytes:
        return b""


class FeedCsv(DmsCsv):
    name, first, lines_before = "feed csv", "insert,1,,", 1
    changes: ClassVar[dict[str, Any]] = {"format": "change-feed", "csv": {"header": True}}

    def bad_op(self) -> dict[str, bytes]:
        return {"op": b"odd,1,,2,2,a", "no version": b"insert,,,2,2,a"}

    def header(self) -> bytes:
        return b"_change_type,_commit_version,_commit_timestamp,id,v,s\n"


class Json(Format):
    name = "json"
    snapshot: ClassVar[dict[str, Any]] = {"format": "json", "schema": DDL}
    lines_before = 0
    marks: ClassVar[dict[str, Any]] = {}

    def row(self, **members: Any) -> bytes:
        return json.dumps({**self.marks, **members}).encode()

    def good(self, key: int) -> bytes:
        return self.row(id=key, v=key, s="a")

    def bad(self) -> dict[str, bytes]:
        return {
            "NULL key": self.row(id=None, v=2, s="a"),
            "bad value": self.row(id=2, v="x", s="a"),
            "out of range": self.row(id=2, v=2147483648, s="a"),
            "bytes": self.row(id=2, v=2, s="?").replace(b"?", b"\xff"),
            "member twice": self.row(id=2, v=2, s="a").replace(b'"v": 2', b'"v": 2, "v": 2'),
            "cut short": self.row(id=2, v=2, s="a")[:-4],
        }

    def write(self, folder: Path, rows: Sequence[bytes]) -> None:
        (folder / "f.json").write_bytes(b"\n".join(rows) + b"\n")


class FeedJson(Json):
    name = "feed json"
    changes: ClassVar[dict[str, Any]] = {"format": "change-feed"}
    marks: ClassVar[dict[str, Any]] = {"_change_type": "insert", "_commit_version": 1}

    def bad(self) -> dict[str, bytes]:
        without = self.row(id=2, v=2, s="a").replace(b'version": 1', b'version": null')
        return super().bad() | {
            "op": self.row(id=2, v=2, s="a").replace(b"insert", b"odd"),
            "no version": without,
        }


class Debezium(Json):
    name = "debezium"
    changes: ClassVar[dict[str, Any]] = {"format": "debezium"}

    def row(self, **members: Any) -> bytes:
        return json.dumps({"op": "c", "before": None, "after": members, "source": {}}).encode()

    def bad(self) -> dict[str, bytes]:
        """A column that is missing is NULL in other lines of JSON, whose writers may leave NULLs out."""
        return super().bad() | {
            "op": self.row(id=2, v=2, s="a").replace(b'"c"', b'"x"'),
            "column missing": self.row(id=2, v=2),
        }


NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])


class Parquet(Format):
    """Of a row: (mark, id, milliseconds, text)."""

    name, place, lines_before = "parquet", "row", 0
    snapshot: ClassVar[dict[str, Any]] = {"format": "parquet"}
    marks: ClassVar[tuple[tuple[str, pa.DataType], ...]] = ()
    mark: ClassVar[tuple[Any, ...]] = ()

    def good(self, key: int) -> Any:
        return (*self.mark, key, key, "a")

    def bad(self) -> dict[str, Any]:
        return {
            "NULL key": (*self.mark, None, 2, "a"),
            "out of range": (*self.mark, 2, 2**62, "a"),
            "bytes": (*self.mark, 2, 2, NO_TEXT),
        }

    def reasons(self) -> dict[str, str]:
        return {"out of range": "column 'v': a value is not a timestamp[us]", "bytes": "Invalid UTF8"}

    def write(self, folder: Path, rows: Sequence[Any]) -> None:
        kinds = [*self.marks, ("id", pa.int64()), ("v", pa.timestamp("ms")), ("s", pa.string())]
        columns = [
            pa.concat_arrays([one if isinstance(one, pa.Array) else pa.array([one], kind) for one in values])
            for (_, kind), values in zip(kinds, zip(*rows, strict=True), strict=True)
        ]
        pq.write_table(pa.table(columns, names=[name for name, _ in kinds]), folder / "f.parquet")


class DmsParquet(Parquet):
    name = "dms parquet"
    changes: ClassVar[dict[str, Any]] = {"format": "dms"}
    marks = (("Op", pa.string()),)
    mark = ("U",)

    def bad(self) -> dict[str, Any]:
        return super().bad() | {"op": ("X", 2, 2, "a")}


class FeedParquet(DmsParquet):
    name = "feed parquet"
    changes: ClassVar[dict[str, Any]] = {"format": "change-feed"}
    marks = (("_change_type", pa.string()), ("_commit_version", pa.int64()))
    mark = ("insert", 1)

    def bad(self) -> dict[str, Any]:
        return super().bad() | {"op": ("odd", 1, 2, 2, "a"), "no version": ("insert", None, 2, 2, "a")}


BY_SPARK = (DmsParquet, FeedParquet)
"""Where no row is quarantined, Spark's own reader reads these."""

FORMATS = [Csv, Json, Parquet, DmsCsv, DmsParquet, FeedCsv, FeedJson, FeedParquet, Debezium]


def read(
    of: Format, root: Path, rows: Sequence[Any], on_error: str, filtered: bool = False
) -> list[dict[str, Any]]:
    """The rows that workers make of one file: of the snapshot, or of the changes after one of a good row."""
    snapshot: Format = of if of.changes is None else Parquet() if isinstance(of, Parquet) else Json()
    (root / "snapshot").mkdir(parents=True)
    snapshot.write(root / "snapshot", rows if of.changes is None else [snapshot.good(1)])
    told: dict[str, Any] = {
        "on_error": on_error,
        "snapshot": {"path": str(root / "snapshot"), **snapshot.snapshot},
    }
    if of.changes is not None:
        (root / "changes").mkdir()
        told["changes"] = {"path": str(root / "changes"), **of.changes}
    upstream = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",), filtered=filtered)])
    pin, session = upstream.pin(), cast("SparkSession", Session())
    try:
        reads = [SnapshotRead("t", split.id, 0, None) for split in pin.splits]
        tasks = upstream.batches("t", reads, 1) if of.changes is None else None
        if tasks is not None:
            pieces = (piece for part in tasks.parts for piece in part)
            return [row for piece in pieces for batch in tasks.make(piece.what) for row in batch.to_pylist()]
        if of.changes is None:
            upstream.scan(session, "t", reads)
        else:
            of.write(root / "changes", rows)
            view = upstream.observe(pin.position, False)
            upstream.changes(session, "t", pin.position, view.latest, dict(pin.schema)["t"])
    except Asked as asked:
        return [row for batch in asked.batches for row in batch.to_pylist()]
    raise AssertionError("workers were asked for nothing")


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_each_kind_of_bad_row_is_quarantined_with_its_place(kind: type[Format], tmp_path: Path) -> None:
    of, rows, wanted = kind(), [], {}
    for number, (what, row) in enumerate(of.bad().items()):
        rows += [of.good(10 + number), row]
        wanted[of.lines_before + len(rows)] = of.reasons().get(what, REASONS[what])
    found = read(of, tmp_path, [*rows, of.good(99)], "quarantine")
    kept = {one["line"]: one["reason"] for row in found if (one := row[own.QUARANTINED])}
    assert kept.keys() == wanted.keys()
    assert [line for line, reason in kept.items() if wanted[line] not in reason] == [], kept
    good = [row["id"] for row in found if row[own.QUARANTINED] is None]
    assert good == [*range(10, 10 + len(wanted)), 99]


CASES = [
    (kind, what)
    for kind in FORMATS
    for what in kind().bad()
    if (kind not in BY_SPARK or what == "no version")
    and (kind, what) != (Parquet, "bytes")  # which staging refuses
]


@pytest.mark.parametrize(("kind", "what"), CASES, ids=lambda one: one if isinstance(one, str) else one.name)
def test_each_kind_of_bad_row_stops_the_job_with_its_place_and_the_way_to_quarantine_it(
    kind: type[Format], what: str, tmp_path: Path
) -> None:
    of = kind()
    rows, place = [of.good(10), of.bad()[what], of.good(11)], f"{of.place} {of.lines_before + 2}"
    with pytest.raises(BadData, match=rf"f\.\w+: {place}\b") as refused:
        read(of, tmp_path / "1", rows, "fail")
    assert of.reasons().get(what, REASONS[what]) in refused.value.message
    with typed(refused.value) as hint:
        found = read(of, tmp_path / "2", rows, str(hint.settings()["upstream.on_error"]))
        assert [row["id"] for row in found if row[own.QUARANTINED] is None] == [10, 11]


STOPS: list[tuple[type[Format], Callable[[Path], object], str]] = [
    (Csv, lambda f: f.write_bytes(b'id,v,s\n1,1,"a\n'), "a quoted field that is never closed"),
    (Csv, lambda f: f.write_bytes(b"id,v,s\n1,1,a\r2,2,b\n"), "a carriage return that ends no line"),
    (Csv, lambda f: f.write_bytes(b"id,v,v\n1,1,1\n"), "two columns of one name"),
    (Csv, lambda f: f.write_bytes(b"id,v\n1,1\n"), "a column that is missing"),
    (Csv, lambda f: f.write_bytes(b"id,v,\xff\n1,1,1\n"), "a header that is not UTF-8"),
    (Parquet, lambda f: f.write_bytes(f.read_bytes()[:-9]), "a Parquet file that breaks off"),
    (Csv, lambda f: f.rename(f"{f}.gz").write_bytes(gzip.compress(b"id,v,s\n1,1,a\n")[:-9]), "a compressed file"),
]
"""Where no row can be told from the others: what makes the file so, and the words for it in docs/files.md."""


@pytest.mark.parametrize(("kind", "spoil", "said"), STOPS, ids=lambda one: one if isinstance(one, str) else None)
def test_what_stops_a_job_that_quarantines_is_documented(
    kind: type[Format], spoil: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    class Spoilt(kind):  # type: ignore[misc, valid-type]
        def write(self, folder: Path, rows: Sequence[Any]) -> None:
            super().write(folder, rows)
            spoil(next(folder.iterdir()))

    with pytest.raises(BadData, match=r"snapshot"):
        read(Spoilt(), tmp_path / "1", [kind().good(1)], "quarantine")
    assert said in STOPPED


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_a_where_may_leave_out_a_row_of_the_snapshot_whose_key_is_null(kind: type[Format], tmp_path: Path) -> None:
    """Whether it does is known once it is computed; a change applies to a key before that."""
    of = kind()
    found = read(of, tmp_path, [of.bad()["NULL key"], of.good(10)], "quarantine", filtered=True)
    kept = [row[own.QUARANTINED] is not None for row in found]
    assert kept == [of.changes is not None, False]


def test_a_file_of_csv_without_the_key_is_named(tmp_path: Path) -> None:
    """A column is missed only if no file's header has it."""
    told = {"path": str(tmp_path), "format": "csv", "schema": DDL}
    (tmp_path / "a.csv").write_text("id,v,s\n1,1,a\n")
    (tmp_path / "b.csv").write_text("v,s\n2,b\n")
    upstream = connector.open(connector.options.model_validate({"snapshot": told}), [TableSpec("t", ("id",))])
    upstream.pin()
    with pytest.raises(BadData, match=r"b\.csv: line 2: column 'id': the key is NULL"):
        upstream.scan(cast("SparkSession", Session()), "t", [SnapshotRead("t", "b.csv", 0, None)])


@pytest.mark.parametrize("foreign", [0, 1, 2], ids=["first", "in the middle", "last"])
def test_a_line_of_another_table_that_is_kept_does_not_say_what_columns_rows_have(
    foreign: int, tmp_path: Path
) -> None:
    """Rows of the next file in the same window had to have its columns, too, and were all kept."""
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "changes").mkdir()
    (tmp_path / "snapshot/a.json").write_text('{"id": 1, "v": 1, "s": "a"}\n')
    lines = [Debezium().row(id=key, v=key, s="a") for key in (2, 3)]
    lines.insert(foreign, Debezium().row(id=9, u=1).replace(b'"source": {}', b'"source": {"table": "other"}'))
    told = {
        "on_error": "quarantine",
        "snapshot": {"path": str(tmp_path / "snapshot"), **Json.snapshot},
        "changes": {"path": str(tmp_path / "changes"), "format": "debezium"},
    }
    upstream = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
    pin = upstream.pin()
    (tmp_path / "changes/1.json").write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "changes/2.json").write_bytes(Debezium().row(id=4, v=4, s="a") + b"\n")
    latest = upstream.observe(pin.position, False).latest
    tasks = upstream.change_batches("t", pin.position, latest, dict(pin.schema)["t"], 1)
    assert tasks is not None
    pieces = (piece for part in tasks.parts for piece in part)
    found = [row for piece in pieces for batch in tasks.make(piece.what) for row in batch.to_pylist()]
    assert [row["id"] for row in found if row[own.QUARANTINED] is None] == [2, 3, 4]
    assert [one["line"] for row in found if (one := row[own.QUARANTINED])] == [foreign + 1]


def test_an_op_in_bytes_that_are_no_text_is_one_that_is_unknown() -> None:
    ops = Ops("Op", ("I", "U"), ("D",))
    assert ops.faults({"Op": pa.array([b"I", b"\xff", None])}) == {1: "unknown Op: \ufffd", 2: "unknown Op: NULL"}


def test_what_is_no_text_is_kept_as_its_bytes_at_any_depth() -> None:
    raw = pa.array([b"ok", b"\xff\xfe", None])
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    lists = pa.ListArray.from_arrays([0, 2, 2, 3], pa.StructArray.from_arrays([texts], ["t"]))
    maps = pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["x", "y", "z"]), texts)
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "l": lists, "m": maps, "s": texts})
    types = pa.schema([("id", pa.int64())])
    read = text_rows.TextRows(cast("Any", None), ("id",), {"id": field("id", "long")})
    block = parquet_rows._Block(read, types, 0, rows)
    kept = [json.loads(block.record(index)[1]) for index in range(3)]
    assert [row["l"] for row in kept] == [[{"t": "ok"}, {"t": "\\xfffe"}], [], [{"t": None}]]
    assert [row["m"] for row in kept] == [[["x", "ok"]], [["y", "\\xfffe"]], [["z", None]]]
    assert [row["s"] for row in kept] == ["ok", "\\xfffe", None]


@pytest.mark.parametrize("mode", [None, "LEGACY"])
def test_old_dates_of_changes_are_left_to_spark_where_it_rebases_them(
    mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DmsParquet().write(tmp_path, [DmsParquet().good(1)])
    snapshot, changes = ({"path": str(tmp_path), "format": kind} for kind in ("parquet", "dms"))
    told = {"on_error": "quarantine", "snapshot": snapshot, "changes": changes}
    upstream: Any = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
    form = upstream.log._folders["t"].whole.form
    where = place(str(tmp_path), "t")
    (file,) = Listing(where).files().values()
    settings = {"spark.master": "local[1]", "spark.sql.parquet.datetimeRebaseModeInRead": mode}
    monkeypatch.setattr(Session.conf, "get", lambda name, default=None: settings.get(name) or default)
    by, _ = form._read_by(cast("SparkSession", Session()), where, file, {})
    assert (by is parquet_rows.whole_files) == (mode is None)
