"""Avro by columns and one by one, against fastavro: values of any schema, and records with something wrong."""

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa

from backfill_cli.decode.avro import Avro
from backfill_cli.decode.tokens import NO_TEXT, Ambiguous, Token
from backfill_cli.decode.unreadable import Unreadable
from oracle import avro_inputs, avro_types, typed
from oracle.avro_inputs import Drawn
from oracle.inputs import SEED, TIMES

SCHEMAS, RECORDS = 250, 40


def test_values_are_what_was_written() -> None:
    chance = random.Random(SEED)
    for _ in range(int(SCHEMAS * TIMES)):
        one = avro_inputs.drawn(chance, RECORDS)
        reader = Avro(json.dumps(one.schema))
        for raw, value in zip(one.written, one.values, strict=True):
            assert repr(reader.token(raw)) == repr(avro_inputs.token(one.schema, value, one.named)), one.schema
        wanted = avro_inputs.arrow(one.schema, one)
        if wanted is None:
            continue
        some = [f for f in wanted if chance.random() < 0.7]
        for asked in (list(wanted), some):
            columns, kept = reader.read(one.written, pa.schema(asked))
            assert list(kept) == list(range(len(one.written)))
            rows = [avro_inputs.cell(one.schema, v, pa.struct(asked), one.named) for v in one.values]
            for f in asked:
                columns[f.name].validate(full=True)
                assert repr(columns[f.name].to_pylist()) == repr([row[f.name] for row in rows]), (f, one.schema)


def test_what_is_no_value_is_refused_by_both_ways_alike() -> None:
    chance = random.Random(SEED + 1)
    for _ in range(int(SCHEMAS * TIMES)):
        one = avro_inputs.drawn(chance, RECORDS // 4)
        raws = [avro_inputs.damaged(chance, raw) for raw in one.written for _ in range(4)]
        reader = Avro(json.dumps(one.schema))
        tokens = [told(reader, raw) for raw in raws]
        for raw, found in zip(raws, tokens, strict=True):
            agrees(one, raw, found)
        wanted = avro_inputs.arrow(one.schema, one)
        if wanted is None:
            continue
        columns, kept = reader.read(raws, pa.schema(list(wanted)))
        # what is not asked for may be no UTF-8, or a map with a key twice
        for i in set(range(len(raws))) ^ set(kept):
            assert isinstance(tokens[i], Unreadable), (one.schema, raws[i])
        good = [i for i, found in enumerate(tokens) if not isinstance(found, Unreadable)]
        assert set(good) <= set(kept)
        assert len(kept) - len(good) <= sum(is_of_what_is_passed_over(found) for found in tokens)
        assert {len(column) for column in columns.values()} <= {len(kept)}


def test_arrays_of_many_blocks_are_what_was_written_in_few_records_and_in_many() -> None:
    chance = random.Random(SEED + 2)
    for number in range(int(SCHEMAS * TIMES / 4)):
        one = avro_inputs.drawn(chance, RECORDS)
        items = one.schema
        if avro_inputs.without_bytes(items, one.named):
            continue
        kind = {"type": "array", "items": items} if number % 2 else {"type": "map", "values": items}
        whole = {
            "type": "record",
            "name": "Whole",
            "fields": [{"name": "v", "type": kind}, {"name": "z", "type": "int"}],
        }
        wanted = avro_inputs.arrow(whole, Drawn(whole, one.named))
        records = 40 if number % 3 else 5
        values = [[chance.randrange(RECORDS) for _ in range(chance.choice((0, 1, 3, 50)))] for _ in range(records)]
        raws = [in_blocks(chance, one, those, is_map=number % 2 == 0) + b"\x0e" for those in values]
        reader = Avro(json.dumps(whole))
        if wanted is None or not isinstance(wanted, pa.StructType) or len(list(wanted)) < 2:
            continue
        columns, kept = reader.read(raws, pa.schema(list(wanted)))
        assert list(kept) == list(range(records))
        assert columns["z"].to_pylist() == [7] * records
        for those, found, raw in zip(values, columns["v"].to_pylist(), raws, strict=True):
            cells = [
                avro_inputs.cell(items, one.values[i], element_of(wanted.field("v").type), one.named)
                for i in those
            ]
            told_ = cells if number % 2 else [(str(n), cell) for n, cell in enumerate(cells)]
            assert repr(found) == repr(told_), whole
            theirs = fastavro.schemaless_reader(io.BytesIO(raw), avro_inputs.without_logical(whole), None)
            assert len(theirs["v"]) == len(those)
        bad = [avro_inputs.damaged(chance, raw) for raw in raws]
        tokens = [told(reader, raw) for raw in bad]
        _, good = reader.read(bad, pa.schema(list(wanted)))
        for i in range(records):
            is_bad = isinstance(tokens[i], Unreadable) or isinstance(tokens[i]["v"], Ambiguous)
            assert (i in set(good)) != is_bad or is_of_what_is_passed_over(tokens[i]), (whole, bad[i], tokens[i])


def element_of(kind: pa.DataType) -> pa.DataType:
    return kind.item_type if pa.types.is_map(kind) else kind.value_type


def in_blocks(chance: random.Random, one: Drawn, those: list[int], is_map: bool) -> bytes:
    """An array or a map of records that were written, in blocks with and without their sizes."""
    found, at = b"", 0
    elements = [(key(n) if is_map else b"") + one.written[i] for n, i in enumerate(those)]
    while at < len(elements):
        block = elements[at : at + chance.choice((1, 2, 7, 1000))]
        at += len(block)
        raw, sized = b"".join(block), chance.random() < 0.5
        found += number_of(-len(block) if sized else len(block)) + (number_of(len(raw)) if sized else b"") + raw
    return found + b"\0"


def key(n: int) -> bytes:
    return number_of(len(str(n))) + str(n).encode()


def number_of(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def told(reader: Avro, raw: bytes) -> Token:
    try:
        return reader.token(raw)
    except Unreadable as exc:
        return exc


def is_of_what_is_passed_over(found: Token) -> bool:
    return isinstance(found, Unreadable) and NO_TEXT in str(found)


STRICTER = (" bytes too many", " is no int", " is no boolean", "64 bits", "a length of", " not one of number -")
STRICTER += ("have no bytes", "a block ", "nested too deep")
"""What fastavro reads all the same, or would read for ever."""


def agrees(one: Drawn, raw: bytes, found: Token) -> None:
    """fastavro reads the same, or nothing either; or there is a reason why it is not read here."""
    if isinstance(found, Unreadable) and any(words in str(found) for words in STRICTER):
        return
    into = io.BytesIO(raw)
    try:
        theirs: Any = fastavro.schemaless_reader(into, avro_inputs.without_logical(one.schema), None)
    except (Exception, RecursionError):
        assert isinstance(found, Unreadable), (one.schema, raw)
        return
    assert not isinstance(found, Unreadable), (found, one.schema, raw)
    assert repr(avro_inputs.plain(one.schema, found, one.named)) == repr(theirs), (one.schema, raw)


def test_the_page_of_types_says_what_they_become() -> None:
    typed.checked("avro", avro_types.table())
