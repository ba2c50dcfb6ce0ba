"""Decoders by themselves, records singly and in batches: exactly the rows of plain Python, or a fault."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decode, Decoded
from backfill_cli.decode.debezium import decoder as debezium_decoder
from backfill_cli.decode.json_rows import decoder as json_decoder
from backfill_cli.formats.schemas import of_ddl
from oracle import plain, tokens
from oracle.debezium_inputs import COLUMNS, MANNERS
from oracle.inputs import SEED
from oracle.kafka_inputs import HOSTILE, RECORDS, TOLERATED
from oracle.readers import debezium, json_text, kafka_json, kinds
from oracle.readers.kinds import Kind, No
from oracle.test_kafka_debezium import messages

Rows = list[tuple[int, str, plain.Row | None, str | None]]
"""(index of the record, op, row or None with an error, error)"""


def opened(
    decoder: Any, columns: Mapping[str, Kind], key: Sequence[str], samples: Sequence[bytes], **options: Any
) -> Decode:
    declared = of_ddl(kinds.ddl_of(dict(columns)))
    asked = Asked("topic 't'", "t", "t", tuple(key), declared, options, "upstream.value", ordered=True)
    found = decoder.columns(asked, lambda: samples)
    made: Decode = decoder.open(asked, found.columns, found.facts).decode(lambda: samples)
    return made


def rows_of(found: Decoded, columns: Mapping[str, Kind], records: int) -> Rows:
    record = range(records) if found.record is None else found.record.to_pylist()
    ops = ["U"] * len(record) if found.op is None else found.op.to_pylist()
    errors = [None] * len(record) if found.error is None else found.error.to_pylist()
    told: Rows = []
    lists = found.beside.get(own.UNSENT)
    unsent = [None] * len(record) if lists is None else lists.to_pylist()
    for n, (i, op, error) in enumerate(zip(record, ops, errors, strict=True)):
        row = {name: plain.of_arrow(found.columns[name][n]) for name in columns}
        if unsent[n] is not None:
            assert {row[name] for name in unsent[n]} == {None}
            assert op == "U"
            row |= dict.fromkeys(unsent[n], debezium.UNSENT)
        assert error is None or set(row.values()) == {None}, error
        told.append((i, op, None if error else row, error))
    return told


def batches(count: int) -> list[range]:
    """Singly, in sevens, in hundreds and all at once."""
    sizes = (1, 7, 100, count)
    return [range(at, min(at + size, count)) for size in sizes for at in range(0, count, size)]


ZEROS = (b'{"f": -0}', b'{"f": -0.0}', b'{"g": -0}', b'{"g": -0.0}', b'{"g": -0, "f": -0.0}')


def simple(columns: Mapping[str, Kind]) -> dict[str, Kind]:
    """Those that Arrow's parser can read."""
    return {n: k for n, k in columns.items() if isinstance(k, str) or k[0] == "decimal"}


WIDE: dict[str, Kind] = {f"d{scale}": ("decimal", 38, scale) for scale in (1, 2, 10, 18, 37, 38)}
"""Decimals whose whole numbers need more than 128 bits once they have all their places."""


@pytest.mark.parametrize(
    "columns", [tokens.COLUMNS, simple(tokens.COLUMNS), WIDE], ids=["all", "simple", "wide-decimals"]
)
def test_rows_of_json(columns: dict[str, Kind], judged: Callable[[int], None]) -> None:
    hostile = () if columns is WIDE else (*HOSTILE, *ZEROS)
    records = [None, *hostile, *(text.encode() for text in tokens.records(columns, RECORDS))]
    decode = opened(json_decoder, columns, (), ())
    right = [kafka_json.event(columns, raw) for raw in records]
    judged(len(records))
    wrong = []
    for span in batches(len(records)):
        of_span = [records[i] for i in span]
        told = rows_of(decode(of_span), columns, len(of_span))
        assert [i for i, *_ in told] == list(range(len(of_span)))
        for i, (_, _, row, error) in zip(span, told, strict=True):
            if row is None:
                fine = right[i].row is None or bool(right[i].may_be_refused)
            else:
                fine = row == right[i].row or records[i] in TOLERATED
            if not fine:
                wrong.append(
                    f"{records[i]!r:.200} ({len(of_span)}): {row and shown(row)} {error}, not {right[i]!r:.300}"
                )
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:40])


def shown(row: plain.Row) -> plain.Row:
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("columns", [COLUMNS, simple(COLUMNS)], ids=["all", "simple"])
@pytest.mark.parametrize("manner", range(len(MANNERS)), ids=["-".join(told) for told in MANNERS])
def test_changes_of_debezium(columns: dict[str, Kind], manner: int, judged: Callable[[int], None]) -> None:
    unit, form = MANNERS[manner]
    told = {"timestamps": "us", "decimals": "precise"} if form == "block" else {}
    _judge_debezium(columns, manner, {"timestamps": unit, "decimals": form} | told, judged)


@pytest.mark.parametrize("columns", [COLUMNS, simple(COLUMNS)], ids=["all", "simple"])
def test_numbers_of_time_whose_unit_nobody_says(columns: dict[str, Kind], judged: Callable[[int], None]) -> None:
    """The records at the start showed no number: those that come later are faults, texts are read."""
    _judge_debezium(columns, 0, {"decimals": MANNERS[0][1]}, judged)


def _judge_debezium(
    columns: dict[str, Kind], manner: int, told_by: Mapping[str, str], judged: Callable[[int], None]
) -> None:
    """told_by: the options. Without timestamps, the samples show no number of a time."""
    unit, form = MANNERS[manner]
    right_by = {"timestamps": unit, "decimals": form} if "timestamps" in told_by else told_by
    records: list[bytes | None] = []
    right: list[list[tuple[Any, plain.Row | None]] | None] = []
    for raw in messages(random.Random(SEED + manner), manner):
        doubts: list[str] = []
        made: list[tuple[Any, plain.Row | None]] | None = []
        try:
            if raw is not None:
                token = json_text.parsed(raw)
                json_text.well_formed(token)
                made = debezium.changes(columns, "id", token, right_by, doubts)
        except No:
            made = None
        if made is None or not doubts:
            records.append(raw)
            right.append(made)
    samples = [raw for raw in (*records[:10], *records[-10:]) if raw is not None]
    if "timestamps" not in told_by:
        nulls = ",".join(f'"{name}":null' for name in columns if name != "id")
        samples = [f'{{"op":"c","after":{{"id":1,{nulls}}},"source":{{"schema":"public","table":"t"}}}}'.encode()]
    decode = opened(debezium_decoder, columns, ("id",), samples, **told_by)
    judged(len(records))
    wrong = []
    for span in batches(len(records)):
        told = rows_of(decode([records[i] for i in span]), columns, len(span))
        by_record: dict[int, list[tuple[str, plain.Row | None, str | None]]] = {i: [] for i in span}
        for n, op, row, error in told:
            by_record[span[n]].append((op, row, error))
        for i, found in by_record.items():
            errors = [error for *_, error in found if error]
            if (right[i] is None) != bool(errors):
                wrong.append(f"{records[i]!r:.600} ({len(span)}): {errors or 'read'}, not {right[i]}")
            elif not errors:
                wrong += _differing(records[i], found, right[i] or [])
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


def _differing(raw: bytes | None, found: Any, right: list[tuple[Any, plain.Row | None]]) -> list[str]:
    """What the rows do to the table, by key: a row at it, or none."""
    got = {debezium.ALL if op == "T" else row["id"]: row if op == "U" else None for op, row, _ in found}
    return [] if got == dict(right) else [f"{raw!r:.600}: {got}, not {dict(right)}"]
