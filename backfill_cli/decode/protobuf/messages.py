"""Which message of its schema each record is, by the indexes that Confluent's serializers write before it."""

from collections.abc import Mapping, Sequence

from backfill_cli.schema_registry.wire import NoId, message_indexes

_FIRST = b"\0"


def by_indexes(
    payloads: Sequence[bytes],
) -> tuple[Mapping[tuple[int, ...], tuple[list[int], list[bytes]]], Mapping[int, NoId]]:
    """(message indexes → the numbers of the records, rising, and their messages; why others have no indexes).

    payloads: what follows the id of a schema.
    """
    found: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
    faults: dict[int, NoId] = {}
    for number, payload in enumerate(payloads):
        try:
            indexes, length = ((0,), 1) if payload[:1] == _FIRST else message_indexes(payload)
        except NoId as exc:
            faults[number] = exc
            continue
        numbers, messages = found.setdefault(indexes, ([], []))
        numbers.append(number)
        messages.append(payload[length:])
    return found, faults
