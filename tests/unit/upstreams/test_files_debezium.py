"""What a Debezium file says of its columns, with and without the schema block."""

import json
from pathlib import Path
from typing import Any

import pytest
from files_builders import at, event, land, opened, parquet, pending, restored
from hint_typed import typed

from backfill_cli.decode.connect import encoding, own_type
from backfill_cli.decode.encodings import Encoding, schemaless
from backfill_cli.errors import BadData
from backfill_cli.formats.listing import Listing
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, field, shown


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


DECIMAL = "org.apache.kafka.connect.data.Decimal"
OWN: list[tuple[dict[str, Any], str]] = [
    ({"type": "int8"}, "tinyint"),
    ({"type": "int64"}, "bigint"),
    ({"type": "boolean"}, "boolean"),
    ({"type": "bytes"}, "binary"),
    (logical("bytes", DECIMAL, **{"scale": "2", "connect.decimal.precision": "10"}), "decimal(10,2)"),
    (logical("bytes", DECIMAL, scale="2"), "decimal(38,2)"),
    (logical("int32", "io.debezium.time.Date"), "date"),
    (logical("int32", "org.apache.kafka.connect.data.Date"), "date"),
    (logical("int64", "io.debezium.time.MicroTimestamp"), "timestamp_ntz"),
    (logical("int64", "org.apache.kafka.connect.data.Timestamp"), "timestamp_ntz"),
    (logical("string", "io.debezium.time.ZonedTimestamp"), "timestamp"),
    (logical("int64", "io.debezium.time.MicroTime"), "bigint"),
    (logical("int32", "io.debezium.time.Year"), "int"),
    (logical("string", "io.debezium.data.Enum"), "string"),
    ({"type": "array", "items": {"type": "string"}}, "array<string>"),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, "map<string,int>"),
    ({"type": "struct", "fields": [{"field": "x", "type": "double"}]}, "struct<x:double>"),
]


@pytest.mark.parametrize(("told", "kind"), OWN, ids=[f"{t.get('name', t['type'])}-{k}" for t, k in OWN])
def test_a_new_column_has_the_type_that_the_schema_block_tells(told: dict[str, Any], kind: str) -> None:
    own, _ = own_type(told)
    assert shown(own) == kind
    assert isinstance(encoding(told, own), Encoding)


def test_uuid_and_json_are_text_that_remembers_what_it_is() -> None:
    assert own_type(logical("string", "io.debezium.data.Uuid")) == ("string", {"logical": "uuid"})
    assert own_type(logical("string", "io.debezium.data.Json")) == ("string", {"logical": "json"})


@pytest.mark.parametrize(
    "told",
    [
        logical("struct", "io.debezium.data.VariableScaleDecimal"),
        logical("bytes", DECIMAL, **{"scale": "2", "connect.decimal.precision": "50"}),
        logical("string", "com.example.Unknown"),
        {"type": "map", "keys": {"type": "int32"}, "values": {"type": "int32"}},
        {"type": "nothing"},
    ],
)
def test_a_type_without_an_exact_one_here_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        own_type(told)


@pytest.mark.parametrize(
    ("told", "target", "kind"),
    [
        ({"type": "int32"}, "long", "plain"),
        (logical("int64", "io.debezium.time.Timestamp"), "timestamp", "units"),
        (logical("string", "io.debezium.time.ZonedTimestamp"), "string", "text"),
        (logical("struct", "io.debezium.data.VariableScaleDecimal"), "decimal(10,2)", "variable"),
        ({"type": "string"}, "decimal(10,2)", "text"),
        ({"type": "float"}, "double", "plain"),
    ],
)
def test_what_fits_a_column_is_read_into_it(told: dict[str, Any], target: str, kind: str) -> None:
    assert encoding(told, target).kind == kind


@pytest.mark.parametrize(
    ("told", "target"),
    [
        ({"type": "int64"}, "integer"),
        ({"type": "double"}, "float"),
        ({"type": "double"}, "decimal(10,2)"),
        ({"type": "string"}, "long"),
        (logical("int64", "io.debezium.time.MicroTime"), "timestamp"),
        (logical("string", "io.debezium.time.ZonedTimestamp"), "timestamp_ntz"),
        (logical("bytes", DECIMAL, scale="2"), "binary"),
        (logical("int32", "io.debezium.time.Date"), "integer"),
    ],
)
def test_what_does_not_fit_a_column_is_refused(told: dict[str, Any], target: str) -> None:
    with pytest.raises(Unsupported):
        encoding(told, target)


@pytest.mark.parametrize(("decimals", "target"), [(None, "decimal(5,2)"), ("double", "decimal(16,2)")])
def test_schemaless_decimals_need_an_option_that_keeps_them(decimals: str | None, target: str) -> None:
    with pytest.raises(Unsupported):
        schemaless(target, None, decimals)


# Files


def wrapped(payload: dict[str, Any] | None, **told: dict[str, Any]) -> str:
    fields = [{**one, "field": name} for name, one in told.items()]
    return json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload})


OLD: dict[str, Any] = {"id": {"type": "int64"}, "name": {"type": "string"}}


def schema_after(root: Path, *lines: str, **changes: Any) -> list[tuple[str, str]] | None:
    parquet(root / "snapshot" / "a.parquet")
    (root / "changes" / "1.json").unlink(missing_ok=True)
    upstream = opened(root, changes=changes)
    upstream.pin()
    land(root / "changes", "1.json", *lines)
    (epoch,) = upstream.observe(Position(), False).pending
    found = dict(epoch.schema).get("t")
    return None if found is None else [(n, shown(f["type"])) for n, f in columns_of(found).items()]


def test_case_26_a_schema_block_tells_a_new_columns_type_even_where_the_last_line_is_a_delete(
    tmp_path: Path,
) -> None:
    new = {**OLD, "price": logical("bytes", DECIMAL, **{"scale": "2", "connect.decimal.precision": "9"})}
    delete = {"op": "d", "before": {"id": 1}, "after": None, "source": {"ts_ms": 3}}
    found = schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **OLD), wrapped(delete, **new), "null")
    assert found == [("id", "bigint"), ("name", "string"), ("price", "decimal(9,2)")]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({**OLD, "name": {"type": "int32"}}, "column 'name' was string, and is int"),
        ({"id": OLD["id"]}, "column 'name' is gone"),
        ({**OLD, "Name": OLD["name"]}, "column 'Name' differs from 'name' only in case"),
    ],
    ids=["type", "gone", "case"],
)
def test_case_26_a_file_whose_columns_cannot_be_followed_is_named_and_may_be_replaced(
    tmp_path: Path, told: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadData, match=rf"changes/1\.json: the last line with a row: {why}") as refused:
        schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **told), "null")
    with typed(refused.value.naming("orders", True)) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        assert schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **OLD)) is None
        assert hint.commands() == [["drop", "orders", "--with-rows", "--confirm", "orders"]]  # test_hints.py


def test_a_block_that_says_the_same_otherwise_is_no_change(tmp_path: Path) -> None:
    same = {"name": {"type": "string", "optional": True, "default": "x"}, "id": {"type": "int32"}}
    assert schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **same)) is None


@pytest.mark.parametrize("name", ["io.debezium.time.StructuredTimestamp", "io.debezium.time.StructuredDate"])
def test_case_55_a_structured_time_is_its_parts_and_never_taken_for_a_time(name: str) -> None:
    parts = [{"type": "int64", "field": "seconds"}, {"type": "int32", "field": "nanos"}]
    told = {**logical("struct", name), "fields": parts, "optional": True}
    kind, _ = own_type(told)
    assert [field["name"] for field in kind["fields"]] == ["seconds", "nanos"]  # type: ignore[index]
    for target in ("timestamp", "timestamp_ntz", "date", "long", "string"):
        with pytest.raises(Unsupported, match=name):
            encoding(told, target)


def test_a_new_column_of_no_exact_type_says_what_to_declare(tmp_path: Path) -> None:
    odd = {**OLD, "n": logical("struct", "io.debezium.data.VariableScaleDecimal")}
    line = wrapped({"op": "c", "after": {"id": 1}}, **odd)
    with pytest.raises(BadData, match="'n'") as caught:
        schema_after(tmp_path, line)
    with typed(caught.value) as hint:
        columns = hint.settings()["upstream.changes.columns"]
        assert schema_after(tmp_path, line, columns=columns) == [
            ("id", "bigint"),
            ("name", "string"),
            ("n", "decimal(38,10)"),
        ]
        hint.says("or leave it out of the connector (column.exclude.list), and write the file again")
        assert schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **OLD)) is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            (event(1), wrapped({"op": "c", "after": {"id": 2}}, **OLD)),
            "some lines have a schema block and some do not",
        ),
        (
            tuple(
                wrapped({"op": "c", "after": {"id": 2}}, **OLD, more={"type": kind})
                for kind in ("string", "int32")
            ),
            "column 'more' changes its type within the file",
        ),
    ],
    ids=["schema blocks", "a type"],
)
def test_a_file_is_divided_where_its_form_changes(tmp_path: Path, lines: tuple[str, ...], why: str) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    upstream = opened(tmp_path)
    upstream.pin()
    log = upstream.log._folders["t"].whole
    land(tmp_path / "changes", "1.json", *lines)
    (found,) = upstream.observe(Position(), False).pending
    columns = columns_of(dict(found.schema)["t"]) if found.schema else log._base
    with pytest.raises(BadData, match=why) as refused:
        log.form.frame(None, log.where, list(log.files().values()), columns, log._base)
    with typed(refused.value) as hint:
        hint.says("divide the file where that changes, in the order of its lines")
        for number, line in enumerate(lines, 1):
            land(tmp_path / "changes", f"{number}.json", line)
        assert len(upstream.observe(Position(), False).pending) == 2
        assert all(log.form._shape(log.where, file, False) for file in log.files().values())


def test_a_type_that_no_longer_fits_needs_a_new_snapshot(tmp_path: Path) -> None:
    """As when an old file is read again with the columns of a later one."""
    parquet(tmp_path / "snapshot" / "a.parquet")
    land(tmp_path / "changes", "1.json", wrapped({"op": "c", "after": {"id": 1}}, **OLD))
    upstream = opened(tmp_path)
    pin = upstream.pin()
    log = upstream.log._folders["t"].whole
    later = {**columns_of(pin.schema["t"]), "name": field("name", "long")}
    with pytest.raises(BadData, match="column 'name': string does not fit bigint") as refused:
        log.form.frame(None, log.where, list(log.files().values()), later, log._base)
    with typed(refused.value) as hint:
        hint.says("set upstream.snapshot.as_of to the newest change file before it")
        again = opened(tmp_path, as_of="1.json")
        assert again.observe(again.pin().position, False).pending == ()


CREATED = {"op": "c", "after": {"id": 1, "name": "n"}}
ODD_BLOCKS: list[Any] = [
    "x",
    [1],
    {"fields": [{"field": "after", "fields": [{"type": "int64"}]}]},
    {"fields": [{"field": "after", "fields": [{"field": ["id"], "type": "int64"}]}]},
    {"fields": [{"field": "after", "fields": [{"field": "id", "type": "struct", "fields": [1]}]}]},
]
ODD_LINES = [
    *(json.dumps({"schema": block, "payload": CREATED}) for block in ODD_BLOCKS),
    '{"op": "c", "after": ' + "[" * 100_000,
]


@pytest.mark.parametrize("line", ODD_LINES, ids=range(len(ODD_LINES)))
def test_a_line_at_a_files_end_that_says_nothing_is_named_or_is_no_reason_to_stop(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(BadData, match=r"1\.json: line 2: (a schema block that is not|nested too deep)") as refused:
        schema_after(tmp_path, wrapped(CREATED, **OLD), line)
    with typed(refused.value) as hint:
        hint.says("correct the line")
        assert schema_after(tmp_path, wrapped(CREATED, **OLD)) is None
    log = opened(tmp_path).log._folders["t"].whole
    log.form._quarantines = True
    land(tmp_path / "changes", "1.json", line, wrapped(CREATED, **OLD), line)
    (file,) = Listing(log.where).files().values()
    known = {name: field(name, "string") for name in OLD}
    assert list(log.form.inspect(log.where, file, known).columns) == list(OLD)
    assert list(log.form._shape(log.where, file, True).told) == list(OLD)


@pytest.mark.parametrize(
    "told", [{"type": "array"}, logical("bytes", DECIMAL), logical("bytes", DECIMAL, scale="x")]
)
def test_a_column_whose_schema_block_is_cut_short_is_named(tmp_path: Path, told: dict[str, Any]) -> None:
    with pytest.raises(BadData, match="column 'more': a schema block that is not Kafka Connect's"):
        schema_after(tmp_path, wrapped(CREATED, **OLD, more=told))


def test_messages_at_both_ends_of_a_file_do_not_say_how_it_is_written(tmp_path: Path) -> None:
    message = wrapped({"op": "m", "source": {"txId": 1, "lsn": 1}, "message": {"prefix": "p"}})
    log = opened(tmp_path).log._folders["t"].whole
    land(tmp_path / "changes", "1.json", message, wrapped(CREATED, **OLD), message)
    land(tmp_path / "changes", "2.json", message)
    first, second = (log.form._shape(log.where, file, False) for file in Listing(log.where).files().values())
    assert list(first.told) == list(OLD)
    assert second is None


def test_a_tombstone_in_a_schema_block_says_nothing(tmp_path: Path) -> None:
    assert schema_after(tmp_path, wrapped({"op": "c", "after": {"id": 1}}, **OLD), wrapped(None)) is None


FEED = json.dumps({"_change_type": "insert", "_commit_version": 1, "id": 1, "name": "n"})


@pytest.mark.parametrize(("form", "line"), [("debezium", event(1)), ("change-feed", FEED)])
def test_a_line_that_was_kept_at_the_end_of_an_applied_file_is_not_judged_again(
    tmp_path: Path, form: str, line: str
) -> None:
    """Once such lines stop the job again: nothing could be done about it, as the file must not change."""
    parquet(tmp_path / "snapshot" / "a.parquet")
    upstream = opened(tmp_path, changes={"format": form})
    pin = upstream.pin()
    of_form = upstream.log._folders["t"].whole.form
    of_form._quarantines = of_form.quarantines = True
    land(tmp_path / "changes", "1.json", line, '{"cut')
    assert pending(upstream, pin.position) == ["1.json"]
    assert pending(upstream, at("1.json")) == []
    later = restored(tmp_path, pin, upstream.log.remembered(at("1.json")), format=form)
    assert pending(later, at("1.json")) == []
    land(tmp_path / "changes", "2.json", line.replace('_version": 1', '_version": 2'))
    assert pending(later, at("1.json")) == ["2.json"]
    land(tmp_path / "changes", "3.json", '{"cut')
    with pytest.raises(BadData, match="line 1: cut short"):
        pending(later, at("1.json"))


def test_a_member_that_the_last_line_lacks_is_not_to_be_declared(tmp_path: Path) -> None:
    """Its line cannot be read, and may be kept apart: no type of the column helps."""
    parquet(tmp_path / "snapshot" / "a.parquet")
    odd = event(2).replace('"name": "n"', '"name": "n", "more": 1')
    land(tmp_path / "changes", "1.json", event(1), odd, event(3))
    upstream = opened(tmp_path)
    assert pending(upstream, upstream.pin().position) == ["1.json"]


def test_a_line_that_lacks_a_column_is_corrected_or_precedes_a_snapshot(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")

    def read(**how: Any) -> list[int]:
        upstream = opened(tmp_path, **how)
        pin = upstream.pin()
        latest = upstream.observe(pin.position, False).latest
        tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 1)
        pieces = [piece.what for part in tasks.parts for piece in part]
        return [row["id"] for what in pieces for batch in tasks.make(what) for row in batch.to_pylist()]

    land(tmp_path / "changes", "8.json", event(7), event(8).replace(', "name": "n"', ""), event(27))
    with pytest.raises(BadData, match=r"8\.json: line 2 \(of id 8\): column 'name' is not in its row") as refused:
        read()
    with typed(refused.value.naming("orders", True)) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        land(tmp_path / "changes", "8.json", event(7), event(8), event(27))
        assert read() == [7, 8, 27]
        hint.says("take a new snapshot, set upstream.snapshot.as_of to the newest change file before it")
        assert hint.commands() == [["drop", "orders", "--with-rows", "--confirm", "orders"]]
        land(tmp_path / "changes", "8.json", event(7), event(8).replace(', "name": "n"', ""), event(27))
        assert read(as_of="8.json") == []
