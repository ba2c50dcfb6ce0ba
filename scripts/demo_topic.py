"""Writes orders to a topic: many at once, then some per second until Ctrl-C. A demo for scripts/broker.

.venv/bin/python scripts/demo_topic.py --records 200000 --rate 500
"""

import argparse
import json
import sys
import time
from itertools import count

from confluent_kafka import Producer


def order(number: int) -> bytes:
    told = {"id": number, "status": ("new", "paid", "sent")[number % 3], "amount": number * 37 % 100_000 / 100}
    return json.dumps(told).encode()


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
    told = parser.parse_args()
    producer = Producer({"bootstrap.servers": told.bootstrap, "queue.buffering.max.messages": 1_000_000})
    numbers = count()

    def write(records: int) -> None:
        for _ in range(records):
            number = next(numbers)
            producer.produce(told.topic, order(number), str(number))
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
