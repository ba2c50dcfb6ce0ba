"""What the fields of schemas become, as `plan` tells it."""

from collections.abc import Iterator
from typing import Any

import pytest
from toy_registry import running
from unit.decode.registered_avro import Topic

from backfill_cli.decode.fields import fields_read
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.reports import FieldRead
from backfill_cli.registry import decoder

AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.fixture
def topic() -> Iterator[Topic]:
    with running() as registry:
        yield Topic(registry)


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Value", "fields": list(fields)}


OLD = schema(field("id", "int"), field("born", {"type": "int", "logicalType": "date"}), field("gone", "string"))
NEW = schema(
    field("id", "long"),
    field("birthday", {"type": "int", "logicalType": "date"}, aliases=["born"]),
    field("amounts", {"type": "array", "items": AMOUNT}, default=[]),
)


def test_each_field_is_told_with_its_column_and_the_schemas_that_have_it(topic: Topic) -> None:
    old = topic.record(OLD, {"id": 1, "born": 0, "gone": ""})
    topic.record(NEW, {"id": 1, "birthday": 0, "amounts": []})  # the registry has it, and no record yet
    found = decoder("rows").columns(topic.asked(("id",)), lambda: [old])
    assert fields_read(found.columns, found.schemas) == [
        FieldRead("id", "bigint", "id", "long", (2,)),
        FieldRead("id", "bigint", "id", "int", (1,)),
        FieldRead("birthday", "date", "birthday", "date", (2,)),
        FieldRead("birthday", "date", "born", "date", (1,)),
        FieldRead("amounts", "array<decimal(10,2)>", "amounts", "array of Decimal(10,2)", (2,)),
        FieldRead("gone", "string", "gone", "string", (1,)),
    ]


def test_a_field_that_the_declared_columns_leave_out_becomes_none(topic: Topic) -> None:
    old = topic.record(OLD, {"id": 1, "born": 0, "gone": ""})
    declared = of_ddl("id BIGINT, born DATE")
    found = decoder("rows").columns(topic.asked(("id",), declared), lambda: [old])
    (left,) = [one for one in fields_read(found.columns, found.schemas) if one.column is None]
    assert left == FieldRead(None, None, "gone", "string", (1,))


def test_what_an_unwrapping_transform_added_is_no_field_of_the_table(topic: Topic) -> None:
    record = topic.record(schema(field("id", "int"), field("__deleted", "string")), {"id": 1, "__deleted": "no"})
    found = decoder("rows").columns(topic.asked(("id",)), lambda: [record])
    assert [one.field for one in fields_read(found.columns, found.schemas)] == ["id"]


def test_of_an_envelope_the_fields_of_its_row_are_told(topic: Topic) -> None:
    row = {"type": "record", "name": "Row", "fields": [field("id", "long"), field("note", ["null", "string"])]}
    source = {"type": "record", "name": "Source", "fields": [field("table", "string")]}
    envelope = schema(
        field("before", ["null", row], default=None),
        field("after", ["null", "Row"], default=None),
        field("source", source),
        field("op", "string"),
    )
    told = {"before": None, "after": {"id": 1, "note": None}, "source": {"table": "orders"}, "op": "c"}
    found = decoder("debezium").columns(topic.asked(("id",)), lambda: [topic.record(envelope, told)])
    assert fields_read(found.columns, found.schemas) == [
        FieldRead("id", "bigint", "id", "long", (1,)),
        FieldRead("note", "string", "note", "string", (1,)),
    ]
