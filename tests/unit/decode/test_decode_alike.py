"""What a record is does not depend on how it is parsed, nor on the records beside it."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decoded, Fault
from backfill_cli.decode import texts
from backfill_cli.decode.debezium import Envelopes
from backfill_cli.decode.debezium import decoder as debezium
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.source_table import Known
from backfill_cli.decode.tokens import DEEP
from backfill_cli.decode.upserts import upserts
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import decimal_of, field, schema_text


def read(kind: Any, *values: str) -> list[tuple[Any, bool]]:
    """(value as Arrow's text, whether it is an error) of a column of JSON objects."""
    decode = JsonRows(schema_text({"v": field("v", kind)}))
    found = decode([f'{{"v":{value}}}'.encode() for value in values])
    assert found.columns["v"].type == arrow_type(kind)
    errors = [None] * len(values) if found.error is None else found.error.to_pylist()
    return [(str(value), error is not None) for value, error in zip(found.columns["v"], errors, strict=True)]


TOO_LARGE = [
    ("decimal(38,18)", "400000000000000000000"),
    ("decimal(38,18)", "345678901234567890123"),
    ("decimal(38,10)", "40000000000000000000000000000"),
    ("decimal(38,2)", "3500000000000000000000000000000000000"),
    ("decimal(38,38)", "2147483648"),
    ("decimal(20,19)", "34028236692093846346.4"),
    ("decimal(38,18)", "4e20"),
    ("decimal(38,0)", "4e38"),
    ("decimal(38,38)", "1e37"),
    ("decimal(10,2)", "100000000"),
    ("decimal(10,2)", "1e76"),
]


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize(("kind", "text"), TOO_LARGE)
def test_a_decimal_that_is_too_large_is_refused(kind: str, text: str, quote: str) -> None:
    value = f"{quote}{text}{quote}"
    assert read(kind, value) == [("None", True)]
    assert read(kind, f"-{text}" if not quote else f'"-{text}"') == [("None", True)]
    found = read(kind, "0", value, "null")
    assert [error for _, error in found] == [False, True, False]


@pytest.mark.parametrize(
    "kind", ["decimal(38,18)", "decimal(38,38)", "decimal(38,0)", "decimal(10,2)", "decimal(1,1)"]
)
def test_the_largest_decimals_are_read(kind: str) -> None:
    digits, scale = decimal_of(kind)
    most = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
    most = "0" + most if most.startswith(".") else most
    assert read(kind, most, f'"-{most}"') == [(most, False), (f"-{most}", False)]


@pytest.mark.parametrize("kind", ["string", "date", "timestamp", "binary", "long"])
@pytest.mark.parametrize("key", [b'\0\0\0\0\x07"a"', b"\0\0\0\0\x07", b"\0\0\0\0\x07{}"])
def test_a_key_that_a_schema_registry_wrote_deletes_nothing(kind: str, key: bytes) -> None:
    columns = {"id": field("id", kind)}
    of_key = JsonRows(schema_text(columns), kept_apart=False, scalar=True)
    found = upserts(columns, ["id"], JsonRows(schema_text(columns), ("id",)), of_key, [None], [key])
    assert found.error is not None
    assert "schema registry (schema id 7)" in found.error[0].as_py()
    assert found.columns["id"].null_count == 1


def test_a_row_has_the_key_of_its_value_and_a_tombstone_that_of_its_record() -> None:
    """As docs/kafka.md says: the two are not compared."""
    columns = {"id": field("id", "long")}
    of_key = JsonRows(schema_text(columns), kept_apart=False, scalar=True)
    of_value = JsonRows(schema_text(columns), ("id",))
    found = upserts(columns, ["id"], of_value, of_key, [b'{"id":8}', None, b'{"id":9}'], [b"99", b"99", b"no key"])
    assert found.record is not None
    assert found.op is not None
    assert found.error is None or found.error.null_count == 3
    rows = zip(found.record.to_pylist(), found.op.to_pylist(), found.columns["id"].to_pylist(), strict=True)
    assert sorted(rows) == [(0, "U", 8), (1, "D", 99), (2, "U", 9)]


TIMES = [
    ("timestamp", "2020-01-01T00Z"),
    ("timestamp", "2020-01-01T00:00:00+19:00"),
    ("timestamp", "2020-01-01T00:00:00+23:59"),
    ("timestamp", "2020-01-01T00:00:00+18:00"),
    ("timestamp", "2020-01-01T00:00Z"),
    ("timestamp", "2020-01-01"),
    ("timestamp_ntz", "2020-01-01 00"),
    ("timestamp_ntz", "2020-01-01 00:00"),
    ("date", "2020-1-1"),
]


@pytest.mark.parametrize(("kind", "text"), TIMES)
def test_a_time_is_read_or_refused_whatever_is_beside_it(kind: str, text: str) -> None:
    (alone,) = read(kind, f'"{text}"')
    other = '"+2020-01-01"' if kind == "date" else '"2020-01-01T00:00:00.1234560"'  # Arrow does not take them
    assert read(kind, f'"{text}"', other)[0] == alone
    assert texts.column(pa.array([text]), kind)[1].keys() == ({0} if alone[1] else set())


@pytest.mark.parametrize(
    "text", [r'"\\ud83d\ude00"', r'"\\\\ud83d\ude00"', r'"\ud83d"', r'"\\\ud83d"', r'"\ude00\ud83d"']
)
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    assert read("string", '"a"', text, '"b"') == [("a", False), ("None", True), ("b", False)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\\ud83d\ude00"', "\\😀"),
        (r'"\\ud83d\\ude00"', r"\ud83d\ude00"),
        (r'"\\ud83d"', r"\ud83d"),
    ],
)
def test_a_whole_surrogate_pair_is_a_character(text: str, value: str) -> None:
    assert read("string", '"a"', text) == [("a", False), (value, False)]


@pytest.mark.parametrize("depth", [400, 700, 950, 5000, 100_000])
def test_deep_nesting_is_a_fault_of_its_record(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    found = read("string", '"a"', deep, '"b"')
    assert found[0] == ("a", False)
    assert found[1] in ((deep, False), ("None", True))
    assert found[2] == ("b", False)
    changes = envelopes({"v": "string"}, after(v=deep), after(v='"b"'))
    assert changes in ([(deep, None), ("b", None)], [("None", DEEP), ("b", None)])


def after(beside: str = "", **row: str) -> str:
    members = ",".join(f'"{name}":{value}' for name, value in {"id": "1", **row}.items())
    return f'{{"op":"c","after":{{{members}}}{beside}}}'


def envelopes(columns: dict[str, Any], *records: str) -> list[tuple[str, str | None]]:
    """(the last column's value as text, the error) of each record."""
    told = {name: field(name, kind) for name, kind in {"id": "long", **columns}.items()}
    asked = Asked("topic 't'", "t", "t", ("id",), told, {}, "upstream.value")
    found = debezium.columns(asked, list)
    decode = debezium.open(asked, found.columns, found.facts).decode(list)
    made = decode([record.encode() for record in records])
    errors = [None] * len(records) if made.error is None else made.error.to_pylist()
    return list(zip(map(str, made.columns[list(told)[-1]]), errors, strict=True))


@pytest.mark.parametrize(("before", "text"), [("", "12"), ("\n", "12"), ("", '"x"'), ("", "1.5")])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_number_of_time_without_a_unit_is_refused(kind: str, before: str, text: str) -> None:
    found = envelopes({"at": kind}, after(at="null"), before + after(at=text), after(at='"2020-01-01T00:00:00"'))
    assert [error is not None for _, error in found] == [False, True, False]
    assert [value for value, _ in found][1] == "None"


@pytest.mark.parametrize("ms", ["9999999999999999999", "-9999999999999999999", "9223372036854775808"])
@pytest.mark.parametrize("beside", [',"ts_ms":{}', ',"source":{{"ts_ms":{}}}'])
def test_a_source_time_that_is_too_large_is_a_fault_of_its_record(ms: str, beside: str) -> None:
    found = envelopes({"v": "string"}, after(v='"a"'), after(beside.format(ms), v='"b"'), after(v='"c"'))
    assert [value for value, _ in found] == ["a", "None", "c"]
    assert found[1][1] == "not a Debezium envelope of the table's columns"


@pytest.mark.parametrize("told", [[5, -6], ["a", "5"], [5, "b"], [1.5, 2], [None, 7]])
@pytest.mark.parametrize("path", ["tx", "source.tx", "source.txId", "transaction.id.of"])
def test_an_epoch_is_the_text_of_its_member(told: list[Any], path: str) -> None:
    columns = {"id": field("id", "long"), "v": field("v", "string")}
    how = tuple((name, Encoding("plain")) for name in columns)
    decode = Envelopes(schema_text(columns), ("id",), how, None, Known(), images=("v",), epoch=path)
    records = []
    for epoch in told:
        member = epoch
        for name in reversed(path.split(".")):
            member = {name: member}
        records.append(json.dumps({"op": "c", "after": {"id": 1}, **member}).encode())
    together = decode(records)
    right = [None if epoch is None else str(epoch) for epoch in told]
    assert together.beside[own.EPOCH].to_pylist() == right
    assert set(together.beside) == set(decode.beside) == {own.UNSENT, own.EPOCH, own.TRACE}
    assert [decode([one]).beside[own.EPOCH][0].as_py() for one in records] == right


@pytest.mark.parametrize("value", ["1.5", "-0.0", "0", "1e400", '"NaN"', "null"])
def test_an_old_value_is_known_whatever_reads_it(value: str) -> None:
    columns = {"id": field("id", "long"), "f": field("f", "double")}
    how = tuple((name, Encoding("plain")) for name in columns)
    decode = Envelopes(schema_text(columns), ("id",), how, None, Known(), images=("f",))
    change = f'{{"op":"d","before":{{"id":1,"f":{value}}}}}'
    by_arrow, one_by_one = (str(decode([told.encode()]).beside[own.TRACE]) for told in (change, "\n" + change))
    assert by_arrow == one_by_one


NOT_SENT = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "change",
    [
        f'"op":"d","before":{{"id":"{NOT_SENT}"}}',
        f'"op":"u","before":{{"id":"{NOT_SENT}"}},"after":{{"id":"a"}}',
        f'"op":"u","before":null,"after":{{"id":"{NOT_SENT}"}}',
    ],
)
def test_a_key_that_was_not_sent_deletes_nothing(change: str) -> None:
    told = {"id": field("id", "string")}
    asked = Asked("topic 't'", "t", "t", ("id",), told, {}, "upstream.value")
    found = debezium.columns(asked, list)
    decode = debezium.open(asked, found.columns, found.facts).decode(list)
    good = b'{"op":"c","after":{"id":"b"}}'
    made = decode([good, f"{{{change}}}".encode(), good])
    assert made.columns["id"].to_pylist() == ["b", None, "b"]
    assert made.error is not None
    assert (made.error[1].as_py() or "").startswith(f"column 'id': {NOT_SENT}")
    assert made.fault is not None
    assert made.fault.to_pylist() == [None, Fault.NOT_SENT, None]


def in_block(payload: str, *fields: str, more: str = "") -> str:
    image = ",".join(('{"field":"id","type":"int64"}', *fields))
    block = f'{{"type":"struct","fields":[{{"field":"after","type":"struct","fields":[{image}]}}]}}'
    return f'{{"schema":{block},"payload":{payload}{more}}}'


V_IS_TEXT = '{"field":"v","type":"string"}'
ODD_FIELDS = [
    '{"field":"v","type":"struct","fields":[{"type":"string"}]}',
    '{"field":"v","type":"array","items":"string"}',
    '{"field":"v","type":"array","items":[1]}',
    '{"field":"v","type":"struct","fields":5}',
    '{"field":"v","type":"struct","fields":["x"]}',
    '{"field":"v","type":["array"]}',
    '{"field":"v","type":"string","parameters":"x"}',
    '{"field":"v","type":"array","items":' + '{"type":"array","items":' * 400 + "5" + "}" * 401,
]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["string", {"type": "array", "elementType": "string", "containsNull": True}], ids=str
)
@pytest.mark.parametrize("told", ODD_FIELDS)
def test_an_odd_schema_block_is_a_fault_of_its_record(told: str, kind: Any) -> None:
    found = envelopes({"v": kind}, after(v="null"), in_block(after(v="null"), told), after(v="null"))
    assert [error is not None for _, error in found] == [False, True, False]
    assert "schema block" in str(found[1][1])


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ('{"i":1}', Fault.COLUMNS),
        ('{"i":1,"s":"x","t":2}', Fault.COLUMNS),
        ('{"i":"is not in its row","s":"x"}', None),
    ],
)
def test_a_fault_of_a_rows_columns_is_told_by_its_kind_whatever_its_words(row: str, fault: Fault | None) -> None:
    columns, whole = {"i": field("i", "long"), "s": field("s", "string")}, (frozenset("is"), frozenset("is"))
    asked = Asked("topic 't'", "t", "t", ("i",), columns, {}, "upstream.value", whole)
    of_json = JsonRows(schema_text(columns), ("i",), whole)
    of_debezium = debezium.open(asked, columns, {}).decode(list)
    for read, record in ((of_json, row), (of_debezium, f'{{"op":"c","after":{row}}}')):
        for records in ([record], ["{", record]):  # by Arrow, and one by one
            found = read([one.encode() for one in records])
            assert found.error is not None
            assert found.fault is not None
            assert found.error[-1].is_valid
            assert found.fault[-1].as_py() == fault


def test_a_block_with_other_columns_is_told_by_its_kind() -> None:
    columns = {"id": field("id", "long"), "v": field("v", "string")}
    asked = Asked("topic 't'", "t", "t", ("id",), columns, {}, "upstream.value", (frozenset(), frozenset(columns)))
    read = debezium.open(asked, columns, {}).decode(list)
    more = in_block(after(v="null"), V_IS_TEXT, '{"field":"w","type":"string"}')
    found = read(
        [one.encode() for one in (more, in_block(after(v="null")), in_block(after(v="null"), ODD_FIELDS[0]))]
    )
    assert found.fault is not None
    assert found.fault.to_pylist() == [Fault.NEW_COLUMN, Fault.BLOCK_COLUMNS, Fault.SCHEMA_BLOCK]


DECIMAL = '"name":"org.apache.kafka.connect.data.Decimal"'


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    "told",
    [
        *ODD_FIELDS[:5],
        *ODD_FIELDS[6:],
        f'{{"field":"v","type":"bytes",{DECIMAL}}}',
        f'{{"field":"v","type":"bytes",{DECIMAL},"parameters":{{"scale":"x"}}}}',
        '{"field":"v","type":"map","keys":"string","values":1}',
    ],
)
def test_an_odd_schema_block_among_the_first_records_says_nothing_of_the_columns(
    told: str, declared: bool
) -> None:
    records = [in_block(after(v="null"), told).encode(), in_block(after(v='"a"'), V_IS_TEXT).encode()]
    columns = {"id": field("id", "long"), "v": field("v", "string")}
    asked = Asked("topic 't'", "t", "t", ("id",), columns if declared else None, {}, "upstream.value")
    found = debezium.columns(asked, lambda: records)
    assert {name: column["type"] for name, column in found.columns.items()} == {"id": "long", "v": "string"}
    made = debezium.open(asked, found.columns, found.facts).decode(lambda: records)(records)
    assert made.columns["v"].to_pylist() == [None, "a"]
    assert made.error is not None
    assert "schema block" in (made.error[0].as_py() or "")


@pytest.mark.parametrize("more", [',"extra":{}', ',"extra":null,"n":[1]'])
def test_members_after_the_payload_mean_nothing(more: str) -> None:
    told = '{"field":"v","type":"string"}'
    records = [in_block(after(v='"a"'), told), in_block(after(v='"b"'), told, more=more), after(v='"c"')]
    assert [value for value, _ in envelopes({"v": "string"}, *records)] == ["a", "b", "c"]
    ((value, why),) = envelopes({"v": "string"}, in_block(after(v='"b"'), told, more=f"{more},"))
    assert (value, str(why).partition(":")[0]) == ("None", "not JSON")
    twice = in_block(after(v='"b"'), told, more=',"payload":null')
    assert envelopes({"v": "string"}, twice) == [("None", _twice("payload"))]


def _twice(name: str) -> str:
    return f'the name "{name}" occurs twice in an object'


TWICE = [
    (',"x":1,"x":2', None),
    (',"x":{"y":1,"y":2}', None),
    (',"x":[{"y":{"z":1,"z":2}}]', None),
    (',"id":1', "id"),
    (',"v":"a","v":"b"', "v"),
    (',"v":{"y":1,"y":2}', "y"),
]
"""Members of an object or a row, and the name of one that is read and there twice."""


@pytest.mark.parametrize("other", ['"b"', "5"], ids=["for Arrow", "not for Arrow"])
@pytest.mark.parametrize(("more", "name"), TWICE)
def test_a_name_twice_is_a_fault_only_where_it_is_read(more: str, name: str | None, other: str) -> None:
    """Of records that Arrow can read, and of those that are read one by one, for whatever reason."""
    columns = {"id": field("id", "long"), "v": field("v", "string"), "w": field("w", "string")}
    of_rows = JsonRows(schema_text(columns), kept_apart=False)
    good, twice = name is None, _twice(str(name))
    for told in ("", "\n"):
        found = of_rows([f'{told}{{"id":1{more},"w":{other}}}'.encode(), b'{"id":2}'])
        errors = [None, None] if found.error is None else found.error.to_pylist()
        assert [error is None for error in errors] == [good, True]
        assert found.columns["id"].to_pylist() == [1 if good else None, 2]
        changes = envelopes({"v": "string", "w": "string"}, told + after(w=f"{other}{more}"), after(w='"b"'))
        assert changes == [(other.strip('"'), None) if good else ("None", twice), ("b", None)]
    if good:
        assert envelopes({"w": "string"}, after(more, w=other)) == [(other.strip('"'), None)]
        assert envelopes({"w": "string"}, f'{after(w=other)[:-1]},"before":{{"id":1{more}}}}}')[0][1] is None


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (',"op":"c"', "op"),
        (',"after":{}', "after"),
        (',"source":{"db":"a","db":"b"}', "db"),
        (',"ts_ms":1,"ts_ms":2', "ts_ms"),
    ],
)
def test_a_part_of_an_envelope_that_is_there_twice_is_a_fault(more: str, name: str) -> None:
    columns, twice = {"v": "string"}, _twice(name)
    assert envelopes(columns, after(v='"a"'), after(more, v='"b"')) == [("a", None), ("None", twice)]
    told = '{"field":"v","type":"string"}'
    found = envelopes(columns, in_block(after(v='"a"'), told), in_block(after(more, v='"b"'), told))
    assert found == [("a", None), ("None", twice)]


@pytest.mark.parametrize(
    ("told", "good"),
    [
        ('{"field":"v","type":"string","doc":"a","doc":"b"}', True),
        ('{"field":"v","type":"string","type":"string"}', False),
        ('{"field":"v","field":"w","type":"string"}', False),
    ],
)
def test_a_schema_block_with_a_name_twice_is_a_fault_only_where_it_is_read(told: str, good: bool) -> None:
    plain = in_block(after(v='"a"'), '{"field":"v","type":"string"}')
    found = envelopes({"v": "string"}, plain, in_block(after(v='"b"'), told), f"\n{in_block(after(v='1'), told)}")
    assert [error is None for _, error in found] == [True, good, good]


def test_a_delete_by_its_key_has_nothing_beside_its_row() -> None:
    columns = {"id": field("id", "long")}

    def of_value(records: Sequence[bytes | None]) -> Decoded:
        count = len(records)
        return Decoded(
            {"id": pa.array(range(count), pa.int64())}, beside={"note": pa.repeat(pa.scalar("x"), count)}
        )

    of_key = JsonRows(schema_text(columns), kept_apart=False, scalar=True)
    found = upserts(columns, ["id"], of_value, of_key, [b"", None, b""], [b"0", b"7", b"1"])  # type: ignore[arg-type]
    assert found.columns["id"].to_pylist() == [0, 7, 1]
    assert found.beside["note"].to_pylist() == ["x", None, "x"]
