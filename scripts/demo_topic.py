"""Writes orders to a topic: many at once, then some per second until Ctrl-C. A demo for scripts/broker.

.venv/bin/python scripts/demo_topic.py --records 200000 --rate 500

As JSON objects; or, with --registry, as rows in Avro whose schemas are in that registry (scripts/registry).
"""

import argparse
import json
import struct
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from confluent_kafka import Producer

from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry

Record = tuple[bytes, bytes]
"""(key, value)"""

ID = {"name": "id", "type": "long"}
KEY = {"type": "record", "name": "Key", "namespace": "shop.orders", "fields": [ID]}
FIELDS = [ID, {"name": "status", "type": "string"}, {"name": "amount", "type": "double"}]
VALUE = {"type": "record", "name": "Value", "namespace": "shop.orders", "fields": FIELDS}


def order(number: int) -> dict[str, Any]:
    return {"id": number, "status": ("new", "paid", "sent")[number % 3], "amount": number * 37 % 100_000 / 100}


def as_json(told: dict[str, Any]) -> Record:
    return str(told["id"]).encode(), json.dumps(told).encode()


def in_avro(registry: str, topic: str) -> Callable[[dict[str, Any]], Record]:
    """What writes an order with the ids of its schemas, which are registered now."""
    known = SchemaRegistry.of(RegistryOptions(url=registry), "--registry")
    ids = [
        known.register(f"{topic}-{part}", "AVRO", json.dumps(one))
        for part, one in (("key", KEY), ("value", VALUE))
    ]
    key_id, value_id = (b"\0" + struct.pack(">I", id) for id in ids)

    def record(told: dict[str, Any]) -> Record:
        id, status = _long(told["id"]), told["status"].encode()
        return key_id + id, value_id + id + _long(len(status)) + status + struct.pack("<d", told["amount"])

    return record


def _long(number: int) -> bytes:
    """A whole number that is not negative, as Avro writes it: seven bits in each byte, the lowest first."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def main() -> int:
    parser = argparse.ArgumentParser(description="Write orders to a Kafka topic, until Ctrl-C.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (default 127.0.0.1:9092)")
    parser.add_argument("--topic", default="orders", help="the topic, which must exist (default orders)")
    parser.add_argument(
        "--records", type=int, default=200_000, help="orders written at the start (default 200000)"
    )
    parser.add_argument(
        "--rate", type=int, default=500, help="orders per second after that; 0 for none (default 500)"
    )
    parser.add_argument(
        "--registry", metavar="URL", help="write Avro, its schemas registered here: what scripts/registry prints"
    )
    told = parser.parse_args()
    written = as_json if told.registry is None else in_avro(told.registry, told.topic)
    producer = Producer({"bootstrap.servers": told.bootstrap, "queue.buffering.max.messages": 1_000_000})
    numbers = count()

    def write(records: int) -> None:
        for _ in range(records):
            number = next(numbers)
            key, value = written(order(number))
            producer.produce(told.topic, value, key)
            if number % 10_000 == 0:
                producer.poll(0)
        producer.flush()

    try:
        write(told.records)
        print(f"{told.records} orders are in topic {told.topic}; now {told.rate} more per second", file=sys.stderr)
        while told.rate:
            began_s = time.monotonic()
            write(told.rate)
            time.sleep(max(0.0, began_s + 1 - time.monotonic()))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
