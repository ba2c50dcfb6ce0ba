"""Object container files of Avro, as fastavro writes them, and damaged ones."""

import io
import random
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from oracle import avro_inputs
from oracle.avro_inputs import without_logical

from backfill_cli.decode.avro import container, schema
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


def written(rows: list[Any], of: Any = ORDER, **more: Any) -> bytes:
    into = io.BytesIO()
    fastavro.writer(into, fastavro.parse_schema(of), rows, sync_marker=bytes(range(100, 116)), **more)
    return into.getvalue()


def read(raw: bytes) -> list[bytes]:
    source = io.BytesIO(raw)
    head = container.header(source)
    found = container.records(schema.parsed(head.schema), container.blocks(source, head))
    return [one for part in found for one in part]


def recoded(rows: list[Any], codec: str) -> bytes:
    """A file with blocks as other writers compress them: fastavro does only some of it by itself."""
    if codec in ("null", "deflate"):
        return written(rows, codec=codec, sync_interval=500)
    raw = written(rows, sync_interval=500)
    sync, found = (
        raw[-16:],
        [raw[: raw.index(raw[-16:])].replace(b"\x08null", b"%c%b" % (2 * len(codec), codec.encode()))],
    )
    for block in fastavro.block_reader(io.BytesIO(raw)):
        inner = block.bytes_.getvalue()
        if codec == "zstandard":
            made = zstandard.compress(inner)
        else:
            made = pa.Codec("snappy").compress(inner, asbytes=True) + zlib.crc32(inner).to_bytes(4, "big")
        found.append(varint(2 * block.num_records) + varint(2 * len(made)) + made)
    return sync.join([*found, b""])


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_the_records_of_all_blocks_are_found_in_order(codec: str) -> None:
    rows = [{"id": i, "note": None if i % 3 else "x" * (i % 70)} for i in range(3_000)]
    found = read(recoded(rows, codec))
    order = fastavro.parse_schema(ORDER)
    assert [fastavro.schemaless_reader(io.BytesIO(one), order, None) for one in found] == rows
    assert read(recoded([], codec)) == []


def test_the_blocks_of_any_schema_are_cut_where_its_records_end() -> None:
    chance = random.Random(3)
    for _ in range(40):
        one = avro_inputs.drawn(chance, 30)
        if any(not raw for raw in one.written):
            continue
        raw = written(one.values, without_logical(one.schema), sync_interval=chance.choice([1, 50, 10_000]))
        assert read(raw) == one.written


def test_blocks_are_read_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_GROUP", 1000)
    rows = [{"id": i, "note": "x" * 50} for i in range(500)]
    raw = written(rows, sync_interval=100)
    assert len(read(raw)) == 500
    at = raw.rindex(b"\x64" + b"x" * 50)
    with pytest.raises(Unreadable, match="block 250: not 2 records of its schema"):
        read(raw[:at] + b"\x7f" + raw[at + 1 :])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda raw: b"PAR1" + raw[4:], "not an object container file"),
        (lambda raw: raw[:3], "not an object container file"),
        (lambda raw: raw[:40], "cut short"),
        (lambda raw: raw[:-1], "block 3: cut short"),
        (lambda raw: raw[:-17], "block 3: cut short"),
        (lambda raw: raw[:-1] + b"?", "block 3: does not end with the file's marker"),
        (lambda raw: raw.replace(b"avro.schema", b"avro.schemb"), "a header without a schema"),
        (lambda raw: raw + b"\x01\x00" + raw[-16:], "block 4: has -1 records"),
        (lambda raw: raw + b"\x02\x00" + raw[-16:], "block 4: not 1 records of its schema"),
        (lambda raw: raw + b"\x02\x08\x02\x00\x02\x00" + raw[-16:], "block 4: not 1 records of its schema"),
        (lambda raw: raw + b"\xff" * 11, "block 4: a number of more than 64 bits"),
        (lambda raw: raw + b"\x02" + b"\xfe" * 6 + b"\x01" + raw[-16:], "block 4: a length of"),
    ],
)
def test_a_damaged_file_says_why_and_where(damage: Any, why: str) -> None:
    raw = written([{"id": i, "note": "x"} for i in range(9)], sync_interval=10)
    assert len(read(raw)) == 9
    with pytest.raises(Unreadable, match=why):
        read(damage(raw))


def test_what_was_compressed_is_damaged_too() -> None:
    raw = bytearray(written([{"id": i, "note": "x" * 99} for i in range(9)], codec="deflate"))
    raw[-30] ^= 0x55
    with pytest.raises(Unreadable, match="block 1: "):
        read(bytes(raw))


def test_an_unknown_codec_is_named() -> None:
    raw = written([], codec="deflate").replace(b"deflate", b"deflat2")
    with pytest.raises(Unsupported, match="codec 'deflat2' is not read: null, deflate, snappy, zstandard are"):
        read(raw)
