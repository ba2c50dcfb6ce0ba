"""The Kafka sink with a real schema registry: Confluent's reader of Protobuf, fastavro and json read it."""

import io
import json
import urllib.request
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import jsonschema
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import SerializationContext
from hint_typed import typed
from kafka_messages import message_class, row_of
from kafka_sink import SinkTopics
from sink_contract import Epochs, a_table, schema_json
from sink_epochs import written

from backfill_cli.errors import BadData
from backfill_cli.kafka.connection import Connection
from backfill_cli.model.plan import Staged, StagedTable
from backfill_cli.model.schema import field, schema_text
from backfill_cli.sinks.kafka import KafkaSinkOptions, connector, writing
from backfill_cli.sinks.kafka.encodings import records_of

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession
    from registry import Registry

NESTED: dict[str, Any] = {"type": "struct", "fields": [field("a", "long"), field("t", "timestamp")]}
KINDS: dict[str, tuple[Any, pa.DataType]] = {
    "id": ("long", pa.int64()),
    "name": ("string", pa.string()),
    "n": ("integer", pa.int32()),
    "tiny": ("byte", pa.int8()),
    "small": ("short", pa.int16()),
    "d": ("decimal(9,2)", pa.decimal128(9, 2)),
    "x": ("double", pa.float64()),
    "f": ("float", pa.float32()),
    "ok": ("boolean", pa.bool_()),
    "raw": ("binary", pa.binary()),
    "day": ("date", pa.date32()),
    "at": ("timestamp", pa.timestamp("us", "UTC")),
    "local": ("timestamp_ntz", pa.timestamp("us")),
    "tags": ({"type": "array", "elementType": "string", "containsNull": True}, pa.list_(pa.string())),
    "row": (NESTED, pa.struct([("a", pa.int64()), ("t", pa.timestamp("us", "UTC"))])),
}
TABLE = replace(a_table(), schema=schema_text({name: field(name, kind) for name, (kind, _) in KINDS.items()}))
ROWS = [
    {
        "id": 1,
        "name": 'a"b\n',
        "n": -5,
        "tiny": -128,
        "small": 32_767,
        "d": Decimal("-12.50"),
        "x": 0.1,
        "f": 0.5,
        "ok": True,
        "raw": b"\0\xff",
        "day": 20_000,
        "at": 1_760_000_000_123_456,
        "local": -1,
        "tags": ["t", None],
        "row": {"a": 7, "t": 1},
    },
    {"id": 2**63 - 1},
]
"""Times as numbers since 1970; what is left out is NULL."""


def stored(rows: list[dict[str, Any]]) -> pa.Table:
    def array(name: str, kind: pa.DataType) -> pa.Array:
        values = [row.get(name) for row in rows]
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
        if name == "row":
            return pa.array(values, pa.struct([("a", pa.int64()), ("t", pa.int64())])).cast(kind)
        return pa.array(values, kind)

    return pa.table({name: array(name, kind) for name, (_, kind) in KINDS.items()})


@pytest.mark.parametrize("encoding", ["avro", "json-schema", "protobuf"])
def test_records_are_what_their_registered_schema_says_and_read_back(
    broker: "Broker", schema_registry: "Registry", spark: "SparkSession", tmp_path: Path, encoding: str
) -> None:
    topics = SinkTopics(broker)
    told = topics.options(encoding=encoding, registry={"url": schema_registry.url}, partitions=1)
    sink = connector.open(options := KafkaSinkOptions.model_validate(told))
    sink.use(lambda: spark)
    epochs = Epochs(tmp_path / "s", tables=(TABLE,))
    sink.prepare("orders", (TABLE,), into_existing=False)
    commit = epochs.next()
    files = written(Path(commit.folder), "orders/inserts/0.parquet", stored(ROWS).to_pylist(), stored(ROWS).schema)
    staged = Staged(commit.attempt, {"orders": StagedTable(inserts=files, rows=2)})
    topic = f"{topics.prefix}.orders"
    work = writing.Work(
        Connection(options),
        f"{topics.prefix}_state_orders",
        60,
        False,
        replace(commit, staged=staged),
        {"orders": records_of(options, TABLE, topic)},
    )
    list(writing.apply(work, 0))
    found = topics.records(topic)
    values = [read(schema_registry, topic, "value", one.value()) for one in found]
    keys = [read(schema_registry, topic, "key", one.key()) for one in found]
    assert keys == [{"id": 1}, {"id": 2**63 - 1}]
    if encoding != "json-schema":
        assert values == stored_as_python()
    else:
        assert values[0]["d"] == Decimal("-12.50")
        assert values[1] == dict.fromkeys(KINDS) | {"id": 2**63 - 1}
    with sink.copied("orders", False, tmp_path) as copy:
        rows = copy.frame(spark, TABLE, list(KINDS), None).toArrow()
    back = rows.sort_by("id").cast(stored(ROWS).schema)
    assert back.to_pylist() == stored(ROWS).to_pylist()


def stored_as_python() -> list[dict[str, Any]]:
    """As fastavro and protobuf read times."""
    return stored(ROWS).to_pylist()


def read(registry: "Registry", topic: str, part: str, record: bytes) -> Any:
    """The value of a record, by the schema that its id names, which is the subject's newest."""
    with urllib.request.urlopen(f"{registry.url}/subjects/{topic}-{part}/versions/latest") as answer:
        told = json.load(answer)
    assert record[0] == 0
    assert int.from_bytes(record[1:5], "big") == told["id"]
    if told.get("schemaType") == "PROTOBUF":
        held = {name: kind for name, (kind, _) in KINDS.items() if part == "value" or name == "id"}
        message = message_class(part.capitalize(), held)
        of = ProtobufDeserializer(message, {"use.deprecated.format": False})
        return row_of(of(record, SerializationContext(topic, part)), held)
    schema = json.loads(told["schema"])
    if told.get("schemaType") == "JSON":
        value = json.loads(record[5:], parse_float=Decimal)
        jsonschema.validate(json.loads(record[5:]), schema)
        return value
    out = io.BytesIO(record[5:])
    value = fastavro.schemaless_reader(out, schema)
    assert out.read() == b""
    return value


def test_a_name_that_avro_does_not_allow_is_refused_and_says_what_to_do(
    broker: "Broker", schema_registry: "Registry"
) -> None:
    told = SinkTopics(broker).options(encoding="avro", registry={"url": schema_registry.url})
    sink = connector.open(KafkaSinkOptions.model_validate(told))
    odd = a_table(schema=schema_json(id="long", **{"a b": "string"}))
    with pytest.raises(BadData, match="'a b' is no name in Avro") as refused:
        sink.check("orders", (odd,), into_existing=False)
    with typed(refused.value) as hint:
        hint.says("rename or cast it in the transform's select, or leave it out")
        sink.check("orders", (a_table(schema=schema_json(id="long", a_b="string")),), into_existing=False)
