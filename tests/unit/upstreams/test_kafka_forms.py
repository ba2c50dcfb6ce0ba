"""What a sample of records shows: the schema reads each of them exactly, or says that it does not."""

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.contracts.decoder import Asked
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.registry import decoder
from backfill_cli.upstreams.kafka.forms import About, Form, Kind, Record, form_of, kind_of

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-100, 100),
    st.decimals(-999, 999, places=2).map(float),
    st.text(max_size=6),
    st.sampled_from(["2026-01-01", "2026-01-01T10:00:00Z", "2026-01-01 10:00:00", "007", "1.50", "true", "NaN"]),
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["id", "a", "b c", "é"]), SCALARS, min_size=1), min_size=1, max_size=8
)


def records(values: list[Any], keys: list[bytes | None] | None = None) -> list[Record]:
    raw = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in values]
    return [Record(0, i, None if keys is None else keys[i], one) for i, one in enumerate(raw)]


def formed(values: list[Any], keys: list[bytes | None] | None = None, **about: Any) -> Form:
    return form_of(records(values, keys), About("shop.public.orders", "orders", **about))


def told(form: Form) -> dict[str, object]:
    return {name: one.value for name, one in form.options.items()}


def same(value: Any, read: Any) -> bool:
    """Whether a value of the sample is what was read."""
    if isinstance(read, datetime):
        return read.isoformat(" ")[:19] == value.replace("T", " ").rstrip("Z")
    if isinstance(read, date):
        return read.isoformat() == value
    if isinstance(read, str):
        return read == (value if isinstance(value, str) else json.dumps(value))
    if isinstance(read, Decimal):
        return not isinstance(value, bool) and read == Decimal(json.dumps(value))
    return type(read) is type(value) and read == value


@given(ROWS)
def test_every_record_of_the_sample_is_read_exactly(rows: list[dict[str, Any]]) -> None:
    form = formed(rows)
    columns = of_ddl(str(told(form)["value.schema"]))
    assert set(columns) == {name for row in rows for name in row}
    asked = Asked("topic 't'", "t", "t", (), columns, {}, "upstream.value")
    decode = decoder("rows").open(asked, columns, {}).decode(lambda: ())
    found = decode([one.value for one in records(rows)])
    errors = [None] * len(rows) if found.error is None else found.error.to_pylist()
    for i, row in enumerate(rows):
        if errors[i] is not None:
            assert "cannot be read so" in form.options["value.schema"].why, errors[i]
            continue
        for name in columns:
            assert same(row.get(name), found.columns[name][i].as_py()), (name, row)


FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 100.0, 1e22, 1 / 3])


@settings(max_examples=25)
@given(st.lists(FLOATS, min_size=1, max_size=8))
def test_a_sample_of_floats_is_read_exactly_with_its_schema(floats: list[float]) -> None:
    rows = [{"id": i, "f": value, "n": {"f": value}} for i, value in enumerate(floats)]
    form = formed(rows)
    assert "cannot be read so" not in form.options["value.schema"].why
    columns = of_ddl(str(told(form)["value.schema"]))
    assert "string" not in str(columns)
    asked = Asked("topic 't'", "t", "t", (), columns, {}, "upstream.value")
    read = decoder("rows").open(asked, columns, {}).decode(lambda: ())([one.value for one in records(rows)])
    assert [float(value) for value in read.columns["f"].to_pylist()] == floats
    assert [float(value["f"]) for value in read.columns["n"].to_pylist()] == floats


def test_floats_of_many_digits_are_doubles() -> None:
    form = formed([{"id": i, "f": i / 3} for i in range(9)])
    assert told(form)["value.schema"] == "id BIGINT, f DOUBLE"
    assert "'f' has numbers as doubles are written" in form.options["value.schema"].why
    assert told(formed([{"f": 0.5}, {"f": 1e22}]))["value.schema"] == "f DOUBLE"
    assert (
        told(formed([envelope({"id": i, "f": i / 3}) for i in range(9)]))["value.schema"] == "id BIGINT, f DOUBLE"
    )


def test_numbers_that_no_double_is_written_as_stay_text() -> None:
    rows = [b'{"f": 0.12345678901234567890123}', b'{"f": 2.5}']
    assert told(formed(rows))["value.schema"] == "f STRING"
    assert told(formed([b'{"f": 12345678901234567.25}', b'{"f": 2.5}']))["value.schema"] == "f DECIMAL(38,2)"


@pytest.mark.parametrize(
    ("value", "ddl"),
    [
        ({"x": 0.5}, "STRUCT<x: DECIMAL(15,1)>"),
        ([1.25, 100], "ARRAY<DECIMAL(15,2)>"),
        ({"x": [{"y": 1 / 3}]}, "STRUCT<x: ARRAY<STRUCT<y: DOUBLE>>>"),
        ({"x": 1234567890123.25}, "STRUCT<x: DECIMAL(15,2)>"),
        ({"x": 12345678901234.25}, "STRUCT<x: DOUBLE>"),
        (12345678901234.25, "DOUBLE"),
    ],
)
def test_a_number_with_a_point_in_an_envelope_without_its_schema_is_read_exactly(value: Any, ddl: str) -> None:
    """Its decimals are doubles, which keep 15 digits of each: anywhere in a value."""
    form = formed([envelope({"id": 1, "n": value})])
    schema = form.options["value.schema"]
    assert (schema.value, "cannot be read so" in schema.why) == (f"id BIGINT, n {ddl}", False)
    columns = of_ddl(str(schema.value))
    options = {name.removeprefix("value."): one.value for name, one in form.options.items()}
    asked = Asked(
        "topic 't'", "t", "orders", ("id",), columns, {"decimals": options.get("decimals")}, "upstream.value"
    )
    found = decoder("debezium").columns(asked, list)
    read = decoder("debezium").open(asked, found.columns, found.facts).decode(lambda: ())
    raw = json.dumps(envelope({"id": 1, "n": value})).encode()
    rows = read([raw])
    assert rows.error is None or rows.error.null_count == 1
    assert json.loads(json.dumps(rows.columns["n"].to_pylist()[0], default=float)) == value


def envelope(after: dict[str, Any], table: str = "orders", **more: Any) -> dict[str, Any]:
    return {"op": "c", "before": None, "after": after, "source": {"schema": "public", "table": table}, **more}


def block(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": list(fields)}]}


ID = {"field": "id", "type": "int64"}


def test_envelopes_with_a_block_need_no_schema() -> None:
    values = [{"schema": block(ID), "payload": envelope({"id": n})} for n in range(3)]
    keys = [json.dumps({"schema": {}, "payload": {"id": n}}).encode() for n in range(3)]
    form = formed(values, keys)
    assert told(form) == {"value.format": "debezium"}
    assert form.key.value == ["id"]
    assert form.said == "Debezium envelopes with a schema block, 1 column; key id"


def test_envelopes_without_a_block_say_what_their_values_could_mean() -> None:
    rows = [
        {"id": n, "amount": base64.b64encode(bytes([n + 1, 0])).decode(), "made": 1795249844808 + n, "price": 1.5}
        for n in range(9)
    ]
    form = formed(list(map(envelope, rows)), [json.dumps({"id": n}).encode() for n in range(9)])
    assert told(form) == {
        "value.format": "debezium",
        "value.decimals": "double",
        "value.schema": "id BIGINT, amount STRING, made BIGINT, price DECIMAL(15,1)",
    }
    why = form.options["value.schema"].why
    assert "'made' could be a time: then TIMESTAMP, with timestamps = \"ms\"" in why
    assert "'amount' could be a decimal in base64" in why
    assert "'id'" not in why


def test_changes_of_several_tables_are_those_of_the_table_named_like_the_job() -> None:
    values = [envelope({"id": 1}), envelope({"no": 2, "x": "y"}, "lines")]
    keys = [b'{"id": 1}', b'{"no": 2}']
    form = formed(values, keys)
    assert told(form)["value.tables"] == ["public.orders"]
    assert told(form)["value.schema"] == "id BIGINT"
    assert form.key.value == ["id"]
    other = form_of(records(values, keys), About("shop", "persons"))
    assert other.options["value.tables"].value is None
    assert "changes of public.lines, public.orders" in other.options["value.tables"].why


def test_records_whose_keys_are_a_column_are_events_until_something_deletes() -> None:
    rows = [{"customer": n % 3, "id": n} for n in range(9)]
    keys: list[bytes | None] = [str(row["customer"]).encode() for row in rows]
    form = formed(rows, keys)
    assert form.key.value == ()
    assert 'set key = ["customer"]' in form.key.why
    assert formed(rows, keys, compacted=True).key.value == ["customer"]
    assert formed([*rows, None], [*keys, b"1"]).key.value == ["customer"]


def test_keys_that_are_no_column_leave_the_key_of_a_table_open() -> None:
    form = formed([{"id": n} for n in range(5)], [b"random"] * 5, compacted=True)
    assert form.key.value is None
    assert "keys, like 'random', are not columns of the values" in form.key.why
    assert formed([{"id": n} for n in range(5)], [b"random"] * 5).key.value == ()


def test_two_columns_that_both_equal_the_key_are_told_apart_by_name_or_not_at_all() -> None:
    keys: list[bytes | None] = [b"1", b"2"]
    assert formed([{"n": 1, "id": 1}, {"n": 2, "id": 2}], keys, compacted=True).key.value == ["id"]
    assert formed([{"n": 1, "m": 1}, {"n": 2, "m": 2}], keys, compacted=True).key.value is None


def test_keys_of_eight_bytes_are_those_of_a_column_of_numbers() -> None:
    rows = [{"id": n} for n in (-5, 1, 2**40)]
    form = formed([*rows, None], [*(row["id"].to_bytes(8, signed=True) for row in rows), (1).to_bytes(8)])
    assert form.key.value == ["id"]
    assert told(form)["key.format"] == "long"


def test_what_a_transform_adds_to_rows_says_which_are_gone_and_is_no_column() -> None:
    rows = [{"id": 1, "__op": "c", "__deleted": "false"}, {"id": 2, "__op": "d", "__deleted": "true"}]
    form = formed(rows, [b'{"id":1}', b'{"id":2}'])
    assert (form.columns, form.key.value, told(form)["value.format"]) == (("id",), ["id"], "rows")
    assert told(form)["value.schema"] == "id BIGINT"
    assert "__op, __deleted: added by Debezium's transform" in form.options["value.schema"].why


def test_what_debezium_writes_among_its_changes_is_no_row() -> None:
    begin = {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1}
    end = {"status": "END", "id": "1", "event_count": 1, "ts_ms": 1, "data_collections": []}
    form = formed([{"ts_ms": 7}, begin, envelope({"id": 1}), end, None], [b'{"id":1}'] * 5)
    assert told(form)["value.format"] == "debezium"
    assert form.key.value == ["id"]


def test_the_key_that_the_user_names_is_the_key() -> None:
    assert formed([{"id": 1}], None, key=("id",)).key.value == ["id"]
    assert formed([], None, key=("id",)).key.value == ["id"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Kind.TOMBSTONE),
        (b"", Kind.OTHER),
        (b"null", Kind.OTHER),
        (b"17", Kind.OTHER),
        (b"[{}]", Kind.OTHER),
        (b'{"a": 1', Kind.OTHER),
        (b"\xff\xfe{\0}\0", Kind.OTHER),
        (b"\0\0\0\0\x07{}", Kind.OTHER),
        (b"[" * 100_000, Kind.OTHER),
        (b"{}", Kind.ROW),
        (b'{"op": "c"}', Kind.ENVELOPE),
        (b'{"schema": {}, "payload": {"op": "c"}}', Kind.ENVELOPE),
        (b'{"schema": {}, "payload": {"id": 1}}', Kind.WRAPPED),
    ],
)
def test_how_a_value_is_written(value: bytes | None, kind: Kind) -> None:
    assert kind_of(value) is kind


def test_values_that_are_no_json_are_kept_as_bytes_and_said_to_be() -> None:
    form = formed([b"hello", b"\xff"])
    assert told(form) == {"value.format": "bytes"}
    assert "like 'hello'" in form.said
    assert "schema registry" in formed([b"\0\0\0\0\x07abc"]).said


def test_a_few_broken_records_do_not_hide_what_the_others_are() -> None:
    form = formed([{"id": 1}, {"id": 2}, b'{"id": '])
    assert told(form)["value.schema"] == "id BIGINT"
    seen = "1 value that is no JSON object (the first at partition 0, offset 2) among 3 read"
    assert seen in form.options["value.format"].why
    assert formed([{"id": 1}, b"x", b"y"]).options["value.format"].value is None


def test_rows_that_kafka_connect_has_wrapped_are_not_guessed() -> None:
    form = formed([{"schema": {"fields": []}, "payload": {"id": 1}}])
    assert form.options["value.format"].value is None
    assert "schemas.enable = false" in form.options["value.format"].why
