"""The fast path of JSON by itself, records singly and in batches: exactly the rows, or nothing."""

import json
from collections.abc import Callable

import pytest

from backfill_cli.formats.fast_json import read
from oracle import plain, tokens
from oracle.kafka_inputs import HOSTILE, RECORDS, SHORT, WAY
from oracle.readers import kafka_json


def rows(batch: list[bytes | None]) -> list[plain.Row] | None:
    """What the fast path makes of a batch; None where it leaves it to the checked one."""
    found = read(batch, WAY)
    if found is None:
        return None
    return [
        {name: plain.of_arrow(column[i]) for name, column in zip(SHORT, found, strict=True)}
        for i in range(len(batch))
    ]


def shown(row: plain.Row | None) -> plain.Row | None:
    return row and {name: value for name, value in row.items() if value is not None}


def wrong(batch: list[bytes | None]) -> str | None:
    told = rows(batch)
    if told is None:
        return None
    right = [kafka_json.event(SHORT, raw) for raw in batch]
    for raw, row, record in zip(batch, told, right, strict=True):
        if row != record.row:
            return f"{raw!r}: {shown(row)}, not {shown(record.row)} {record.why}"
    return None


def test_the_types_that_take_the_fast_path_are_those_that_need_no_expression() -> None:
    assert {"s", "b", "h", "i", "l", "g", "f", "o", "d", "w", "day", "at", "wall"} <= set(SHORT)


def test_the_fast_path_is_exact_or_says_nothing(judged: Callable[[int], None]) -> None:
    single = [None, *HOSTILE, *(text.encode() for text in tokens.records(SHORT, 4 * RECORDS))]
    faults = [fault for raw in single if (fault := wrong([raw]))]
    kept = [raw for raw in single if rows([raw]) is not None]
    tried, taken = len(single), len(kept)
    for size in (2, 7, 100):
        batches = [kept[i : i + size] for i in range(0, len(kept), size)]
        tried += len(batches)
        faults += [fault for batch in batches if (fault := wrong(batch))]
    judged(tried)
    assert taken > tried / 3
    assert not faults, f"{len(faults)}:\n" + "\n".join(faults[:30])


@pytest.mark.parametrize("split", [b"{", b'{"i": ', b"{} ", b'{"s": "', b'{"i": 1} nu'])
def test_halves_of_records_never_join_to_whole_ones(split: bytes) -> None:
    """Arrow's parser is given many records as one text: what ends one and begins the next must not meet."""
    ends = {b"{": b"}", b'{"i": ': b"1}", b"{} ": b"{}", b'{"s": "': b'"}', b'{"i": 1} nu': b"ll"}
    whole = [b"{}", b'{"i": 5}']
    assert rows([*whole, split, ends[split], *whole]) is None
    assert json.loads("{}") == {}
