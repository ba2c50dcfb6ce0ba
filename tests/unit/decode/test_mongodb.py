"""Documents of MongoDB in envelopes of Debezium: as its tests have them, and collections that change at random."""

import base64
import datetime as dt
import json
import random
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.contracts.decoder import Asked, Decoded, Fault
from backfill_cli.decode.debezium import decoder as debezium
from backfill_cli.decode.mongodb import decoder
from backfill_cli.decode.upserts import upserts
from backfill_cli.errors import ConfigError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.upstreams.kafka.forms import About, Record, form_of

SOURCE = {
    "connector": "mongodb",
    "db": "shop",
    "collection": "orders",
    "ts_ms": 1558965508000,
    "snapshot": "false",
}
DDL = (
    "_id STRING, n INT, long BIGINT, x DOUBLE, d DECIMAL(20,4), ok BOOLEAN, note STRING, at TIMESTAMP, "
    "raw BINARY, tags ARRAY<STRING>, address STRUCT<city: STRING, zip: BIGINT>, "
    "prices MAP<STRING, DECIMAL(10,2)>, doc STRING"
)
MODES = ("strict", "relaxed", "extended")
"""json.serialization.mode: of strict (and legacy) a date is a number, of relaxed most is plain JSON."""
Values = dict[str, Any]


class Oid(str):
    """An ObjectId's digits."""

    __slots__ = ()


class Int(int):
    """An int32."""


# Extended JSON, as the driver for Java writes it


def written(value: Any, mode: str) -> Any:
    if isinstance(value, Oid):
        return {"$oid": str(value)}
    if isinstance(value, Int):
        return {"$numberInt": str(int(value))} if mode == "extended" else int(value)
    if isinstance(value, bool | None):
        return value
    if isinstance(value, int):
        return value if mode == "relaxed" else {"$numberLong": str(value)}
    if isinstance(value, float):
        special = value != value or value in (float("inf"), float("-inf"))
        if mode == "extended" or (mode == "relaxed" and special):
            name = "NaN" if value != value else repr(value).replace("inf", "Infinity")
            return {"$numberDouble": name}
        return value
    if isinstance(value, Decimal):
        return {"$numberDecimal": str(value)}
    if isinstance(value, dt.datetime):
        ms = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
        if mode == "relaxed" and ms >= 0:
            return {"$date": value.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"}
        return {"$date": ms if mode == "strict" else {"$numberLong": str(ms)}}
    if isinstance(value, bytes | uuid.UUID):
        raw, subtype = (value, "00") if isinstance(value, bytes) else (value.bytes, "04")
        text = base64.b64encode(raw).decode()
        if mode == "strict":
            return {"$binary": text, "$type": subtype}
        return {"$binary": {"base64": text, "subType": subtype}}
    if isinstance(value, list):
        return [written(one, mode) for one in value]
    if isinstance(value, dict):
        return {name: written(one, mode) for name, one in value.items()}
    return value


def enveloped(op: str, document: Values | None, mode: str, **more: Any) -> bytes:
    after = None if document is None else json.dumps(written(document, mode), ensure_ascii=False)
    told = {"before": None, "after": after, "updateDescription": None, "source": SOURCE, "op": op, "ts_ms": 5}
    return json.dumps(told | more).encode()


def key_of(document: Values, *, block: bool = False) -> bytes:
    key = {"id": json.dumps(written(document["_id"], "relaxed"))}
    return json.dumps({"schema": {"type": "struct"}, "payload": key} if block else key).encode()


def asked(ddl: str | None = DDL, key: tuple[str, ...] = ("_id",), **more: Any) -> Asked:
    declared = None if ddl is None else of_ddl(ddl)
    return Asked("topic 't'", "server.shop.orders", "orders", key, declared, {}, "upstream.value", **more)


def read(
    records: list[tuple[bytes | None, bytes | None]], ddl: str = DDL, samples: list[bytes] | None = None
) -> Decoded:
    """As a topic reads (key, value)."""
    shown = [value for _, value in records if value is not None] if samples is None else samples
    found = decoder.columns(asked(ddl), lambda: shown)
    keys = {"_id": found.columns["_id"]}
    of_value = decoder.open(asked(ddl), found.columns, found.facts).decode(list)
    of_key = decoder.open(asked(of_keys=True), keys, {}).decode(list)
    values = [value for _, value in records]
    return upserts(found.columns, ("_id",), of_value, of_key, values, [key for key, _ in records])


def told(found: Decoded) -> list[tuple[int, str, Values, str | None]]:
    count = len(found.columns["_id"])
    none = [None] * count
    records, ops, errors = (
        none if one is None else one.to_pylist() for one in (found.record, found.op, found.error)
    )
    rows = [{name: column[n].as_py() for name, column in found.columns.items()} for n in range(count)]
    return [(i, op or "U", row, error) for i, op, row, error in zip(records, ops, rows, errors, strict=True)]


# Collections


def document(chance: random.Random, oid: int) -> Values:
    """With the values that its columns hold, of which some are missing, or null."""
    at = dt.datetime(1900, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=chance.randrange(2**42))
    full: Values = {
        "n": Int(chance.choice([0, -(2**31), 2**31 - 1])),
        "long": chance.choice([0, 2**63 - 1, -(2**63), Int(5)]),
        "x": chance.choice([0.1, -1e300, 5e-324, float("inf"), 2**53]),
        "d": Decimal(chance.randrange(-(10**12), 10**12)).scaleb(-chance.randrange(5)),
        "ok": chance.random() < 0.5,
        "note": chance.choice(["", "ü", 'a"b\\', "x" * 99, "$oid"]),
        "at": at,
        "raw": chance.choice([b"", b"\0\xff", uuid.UUID(int=chance.getrandbits(128))]),
        "tags": chance.sample(["a", "b", "ü"], chance.randrange(4)),
        "address": {"city": "Ulm", "zip": chance.choice([1, 2**40])},
        "prices": {"EUR": Decimal("1.50"), "$x": Decimal(2)},
        "doc": {"b": Int(1), "a": [True, None, "x"]},
        "beside": {"$timestamp": {"t": 5, "i": 1}},
    }
    kept = {
        name: None if chance.random() < 0.1 else value for name, value in full.items() if chance.random() < 0.8
    }
    return {"_id": Oid(f"{oid:024x}"), **kept}


def row_of(held: Values, mode: str) -> Values:
    """The row that a document is."""
    row: Values = {name: held.get(name) for name in of_ddl(DDL)}
    row["_id"] = str(row["_id"])
    for name, kind in (("x", float), ("n", int), ("long", int)):
        row[name] = None if row[name] is None else kind(row[name])
    row["raw"] = row["raw"].bytes if isinstance(row["raw"], uuid.UUID) else row["raw"]
    row["prices"] = None if row["prices"] is None else [*row["prices"].items()]
    if row["doc"] is not None:
        row["doc"] = json.dumps(dict(sorted(written(row["doc"], mode).items())), separators=(",", ":"))
    return row


@pytest.mark.parametrize("mode", MODES)
def test_a_collection_that_changes_at_random_is_what_its_records_say(mode: str) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        held: dict[int, Values] = {}
        records: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(40):
            oid = chance.randrange(6)
            if oid in held and chance.random() < 0.4:
                gone = held.pop(oid)
                image = {"before": json.dumps(written(gone, mode))} if chance.random() < 0.5 else {}
                key = key_of(gone, block=chance.random() < 0.5)
                records.append((key, enveloped("d", None, mode, **image)))
                records += [(key, None)] if chance.random() < 0.7 else []
                continue
            op = "u" if oid in held else chance.choice("cr")
            held[oid] = document(chance, oid)
            records.append((key_of(held[oid]), enveloped(op, held[oid], mode)))
        records.insert(chance.randrange(1, len(records)), (b'{"serverName":"server"}', b'{"ts_ms":5}'))
        table: dict[str, Values] = {}
        for _, op, row, error in told(read(records)):
            assert error is None, f"seed {seed}: {error}"
            table.pop(row["_id"], None)
            if op == "U":
                table[row["_id"]] = row
        assert table == {str(one["_id"]): row_of(one, mode) for one in held.values()}, f"seed {seed}"


def test_debeziums_own_sample_is_read() -> None:
    """As its documentation has it."""
    after = '{"_id" : {"$numberLong" : "1004"},"first_name" : "Anne","last_name" : "Kretchmar","email" : "a@b.c"}'
    record = json.dumps(
        {
            "schema": {"type": "struct", "fields": [], "name": "fulfillment.inventory.customers.Envelope"},
            "payload": {
                "after": after,
                "source": {"connector": "mongodb", "name": "f", "db": "inventory", "collection": "customers"},
                "op": "c",
                "ts_ms": 1558965515240,
            },
        }
    ).encode()
    key = b'{"schema": {"type": "struct"}, "payload": {"id": "1004"}}'
    found = told(read([(key, record), (key, None)], "_id BIGINT, first_name STRING"))
    assert found == [
        (0, "U", {"_id": 1004, "first_name": "Anne"}, None),
        (1, "D", {"_id": 1004, "first_name": None}, None),
    ]


# What is no column


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("STRING", {"$timestamp": {"t": 1, "i": 1}}, "a timestamp of MongoDB's own log has no column type"),
        ("STRING", {"$undefined": True}, "an undefined value has no column type"),
        ("STRING", {"$regularExpression": {"pattern": "a", "options": ""}}, "a regular expression has no"),
        ("STRING", {"$minKey": 1}, "MinKey has no column type"),
        ("STRING", {"$code": "x", "$scope": {}}, "JavaScript code has no column type"),
        ("ARRAY<STRING>", [{"$symbol": "x"}], "a symbol has no column type"),
        ("STRING", {"$date": 5}, "a date, but the column is string"),
        ("TIMESTAMP", 5, "a whole number, but the column is timestamp"),
        ("DATE", {"$date": 5}, "not exactly a date"),
        ("TIMESTAMP", {"$date": {"$numberLong": "9223372036854775807"}}, "out of range"),
        ("BIGINT", "5", "a string, but the column is bigint"),
        ("BIGINT", {"$oid": "0" * 24}, "an ObjectId, but the column is bigint"),
        ("BIGINT", 5.0, "a double, but the column is bigint"),
        ("INT", {"$numberLong": "2147483648"}, "out of range for an int"),
        ("DECIMAL(5,2)", 1.5, "a double, but the column is decimal(5,2)"),
        ("DECIMAL(5,2)", {"$numberDecimal": "1.005"}, "not exactly"),
        ("DECIMAL(5,2)", {"$numberDecimal": "NaN"}, "not a number"),
        ("DOUBLE", {"$numberDecimal": "1.5"}, "a Decimal128, but the column is double"),
        ("STRUCT<a: INT>", [1], "an array, but the column is struct"),
        ("STRING", {"$oid": 5}, "not extended JSON"),
        ("BIGINT", {"$numberLong": "5", "x": 1}, "not extended JSON"),
        ("BINARY", {"$binary": "!", "$type": "00"}, "not exactly a binary"),
    ],
    ids=str,
)
def test_what_a_column_does_not_hold_exactly_is_a_fault(kind: str, value: Any, says: str) -> None:
    record = enveloped("c", None, "strict", after=json.dumps({"_id": "k", "v": value}))
    ((_, _, row, error),) = told(read([(b"{}", record)], f"_id STRING, v {kind}"))
    assert row == {"_id": None, "v": None}
    assert error is not None
    assert error.startswith("column 'v': ")
    assert says in error


@pytest.mark.parametrize(
    ("kind", "value", "row"),
    [
        ("STRING", {"$numberDouble": "1.5"}, "1.5"),
        ("STRING", {"$numberInt": "-5"}, "-5"),
        ("STRING", 2**63, str(2**63)),
        ("STRING", [{"$oid": "0" * 24}, 1], '[{"$oid":"' + "0" * 24 + '"},1]'),
        ("DOUBLE", {"$numberDouble": "-Infinity"}, float("-inf")),
        ("DOUBLE", 2**53, float(2**53)),
        ("FLOAT", 0.5, 0.5),
        ("FLOAT", {"$numberDouble": "Infinity"}, float("inf")),
        ("DATE", {"$date": -86_400_000}, dt.date(1969, 12, 31)),
        (
            "TIMESTAMP",
            {"$date": "2026-11-26T23:59:59.999Z"},
            dt.datetime(2026, 11, 26, 23, 59, 59, 999_000, dt.UTC),
        ),
        ("BINARY", {"$uuid": str(uuid.UUID(int=5))}, uuid.UUID(int=5).bytes),
        (
            "STRING",
            {"$binary": {"base64": base64.b64encode(bytes(16)).decode(), "subType": "04"}},
            str(uuid.UUID(int=0)),
        ),
        ("STRUCT<a: INT>", {"$ref": "x", "a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_each_form_of_a_value_is_its_columns(kind: str, value: Any, row: Any) -> None:
    record = enveloped("c", None, "strict", after=json.dumps({"_id": "k", "v": value}))
    assert told(read([(b"{}", record)], f"_id STRING, v {kind}")) == [(0, "U", {"_id": "k", "v": row}, None)]


@pytest.mark.parametrize(
    ("kind", "value"), [("DOUBLE", 2**53 + 1), ("FLOAT", 2**24 + 1), ("FLOAT", 0.1), ("FLOAT", 1e300)]
)
def test_a_number_that_would_be_rounded_is_a_fault(kind: str, value: Any) -> None:
    record = enveloped("c", None, "strict", after=json.dumps({"_id": "k", "v": value}))
    ((*_, error),) = told(read([(b"{}", record)], f"_id STRING, v {kind}"))
    assert error is not None


def test_a_member_that_differs_from_a_column_only_in_case_is_a_fault() -> None:
    ((*_, error),) = told(read([(b"{}", enveloped("c", {"_id": "k", "N": 5}, "relaxed"))], "_id STRING, n INT"))
    assert error is not None
    assert "member 'N' differs from a column only in case" in error


# Keys


def test_ids_whose_texts_can_be_alike_are_not_taken_for_one_another() -> None:
    first, other = {"_id": Oid("a" * 24)}, {"_id": "a" * 24}
    records = [(key_of(one), enveloped("c", one, "strict")) for one in (first, other)]
    with pytest.raises(ConfigError, match="'_id' is a string and an ObjectId") as refused:
        read(records, "_id STRING")
    with typed(refused.value) as hint:
        hint.says("documents whose ids are of one type")
        assert [error for *_, error in told(read(records[:1], "_id STRING"))] == [None]
    found = told(read([*records, (key_of(other), None)], "_id STRING", [records[0][1]]))
    assert [error is not None for *_, error in found] == [False, True, True]
    found = told(read(records, "_id STRING", []))
    assert [error is not None for *_, error in found] == [False, True]
    for one in (5, {"a": 1}, True, 1.5):
        ((*_, error),) = told(read([(b"{}", enveloped("c", {"_id": one}, "relaxed"))], "_id STRING"))
        assert error is not None


def test_the_key_is_the_documents_own() -> None:
    for key in ((), ("n",), ("_id", "n"), ("kafka_partition", "kafka_offset")):
        with pytest.raises(ConfigError, match="needs the key _id") as refused:
            decoder.columns(asked(key=key), list)
        with typed(refused.value) as hint:
            hint.says('key = ["_id"]')
            assert decoder.columns(asked(key=("_id",)), list).columns.keys() == of_ddl(DDL).keys()
    for ddl, said in (("n INT", "key column '_id' is missing"), (None, r"upstream\.value\.schema: missing")):
        with pytest.raises(ConfigError, match=said) as refused:
            decoder.columns(asked(ddl), list)
        with typed(refused.value) as hint:
            declared = str(hint.settings()["upstream.value.schema"]).removesuffix(", …")
            assert "_id" in decoder.columns(asked(declared), list).columns
    with pytest.raises(ConfigError, match="declare MAP<STRING"):
        decoder.columns(asked("_id STRING, m MAP<INT, INT>"), list)
    with pytest.raises(ConfigError, match="a date is an instant"):
        decoder.columns(asked("_id STRING, at TIMESTAMP_NTZ"), list)


# Capture modes


def test_an_update_without_its_document_is_refused_at_once_and_a_fault_later() -> None:
    described = {"updatedFields": '{"n": 5}', "removedFields": None, "truncatedArrays": None}
    update = enveloped("u", None, "strict", updateDescription=described)
    create = enveloped("c", {"_id": "k", "n": Int(1)}, "strict")
    with pytest.raises(ConfigError, match="an update without its document") as refused:
        read([(b"{}", create), (b"{}", update)], "_id STRING, n INT")
    with typed(refused.value) as hint:
        hint.says("capture.mode = change_streams_update_full")
        whole = enveloped("u", {"_id": "k", "n": Int(5)}, "strict", updateDescription=described)
        assert [row["n"] for _, _, row, _ in told(read([(b"{}", whole)], "_id STRING, n INT"))] == [5]
    found = read([(b"{}", create), (b"{}", update)], "_id STRING, n INT", [create])
    assert found.fault is not None
    assert found.fault.to_pylist() == [None, Fault.NOT_SENT]


def test_the_format_of_tables_names_the_one_of_documents() -> None:
    record = enveloped("c", {"_id": Oid("a" * 24), "note": "x"}, "strict")
    told = asked("id BIGINT, note STRING", ("id",))
    with pytest.raises(ConfigError, match="an envelope of MongoDB, which holds documents as text") as refused:
        debezium.columns(told, lambda: [record])
    with typed(refused.value) as hint:
        assert hint.settings() == {"upstream.value.format": "debezium-mongodb"}
        assert decoder.columns(asked(), lambda: [record]).facts == {"source": "shop.orders"}
    (fault,) = debezium.open(told, of_ddl("id BIGINT, note STRING"), {}).decode(list)([record]).error.to_pylist()
    assert 'value.format = "debezium-mongodb"' in fault


def test_init_guesses_the_format_and_leaves_the_columns_open() -> None:
    record = enveloped("c", {"_id": Oid("a" * 24), "note": "x"}, "strict")
    form = form_of([Record(0, 0, b"{}", record)], About("server.shop.orders", "orders"))
    assert {name: one.value for name, one in form.options.items()} == {
        "value.format": "debezium-mongodb",
        "value.schema": None,
    }
    assert form.key.value == ["_id"]


def test_records_of_others_are_refused() -> None:
    relational = (
        b'{"op":"c","before":null,"after":{"id":1},"source":{"connector":"mysql","db":"shop","table":"t"}}'
    )
    with pytest.raises(
        ConfigError, match="no record of topic 't' is an envelope of Debezium's connector"
    ) as refused:
        read([(b"{}", relational)])
    with typed(refused.value) as hint:
        hint.says("name the topic of a collection")
        read([(b"{}", enveloped("c", {"_id": "k"}, "strict"))])
    other = enveloped("c", {"_id": "k"}, "strict", source={**SOURCE, "collection": "items"})
    mine = enveloped("c", {"_id": "k"}, "strict")
    with pytest.raises(ConfigError, match=r"several collections: shop\.items, shop\.orders") as refused:
        read([(b"{}", mine), (b"{}", other)])
    with typed(refused.value) as hint:
        hint.says("let each collection have a topic of its own")
        for one in (mine, other):
            read([(b"{}", one)])
    found = read(
        [(b"{}", mine), (b"{}", other), (b"{}", relational), (b"{}", b'{"_id": "k", "n": 1}')], DDL, [mine]
    )
    assert [error is not None for *_, error in told(found)] == [False, True, True, True]
