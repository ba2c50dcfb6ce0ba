"""What stands before a record's bytes, against Confluent's own writer of it."""

import re
import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_cli.schema_registry.wire import NoId, Wire, message_indexes

AT = "upstream.registry"
SHORT, LONG = Wire(4, AT), Wire(8, AT)
IDS = st.integers(1, (1 << 31) - 1)


@given(IDS, st.binary(max_size=20))
def test_an_id_and_the_bytes_after_it(id: int, payload: bytes) -> None:
    assert SHORT.split(SchemaId("AVRO", id).id_to_bytes() + payload) == (id, payload)
    assert LONG.split(b"\0" + struct.pack(">q", id) + payload) == (id, payload)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8))
@example([0])
def test_the_message_of_a_protobuf_record(path: list[int]) -> None:
    written = SchemaId("PROTOBUF", 1, message_indexes=path).id_to_bytes() + b"payload"
    _, payload = SHORT.split(written)
    found, length = message_indexes(payload)
    assert (list(found), payload[length:]) == (path, b"payload")


@given(st.binary(max_size=20))
def test_any_bytes_name_a_message_or_are_refused(payload: bytes) -> None:
    try:
        path, length = message_indexes(payload)
    except NoId:
        return
    assert path
    assert min(path) >= 0
    assert 0 < length <= len(payload)


@given(st.lists(st.none() | st.binary(max_size=12) | IDS.map(lambda id: struct.pack(">bi", 0, id)), max_size=30))
def test_records_are_grouped_by_id_as_each_says_by_itself(records: Sequence[bytes | None]) -> None:
    for wire in (SHORT, LONG):
        found, others = wire.grouped(records)
        for index, record in enumerate(records):
            if record is None:
                assert index not in others
                continue
            if index in others:
                with pytest.raises(NoId, match=re.escape(str(others[index]))):
                    wire.split(record)
            else:
                assert index in found[wire.split(record)[0]]
        count = sum(map(len, found.values())) + len(others)
        assert count == len([one for one in records if one is not None])
        assert all(list(indices) == sorted(indices) for indices in found.values())


@pytest.mark.parametrize(
    ("wire", "record", "said"),
    [
        (SHORT, b"", "has no schema id: it is empty"),
        (SHORT, b'{"a":1}', "has no schema id: it begins with b'{"),
        (SHORT, b"\0\0\0", "ends after 3 bytes"),
        (SHORT, b"\0\0\0\0\0\0\0\0\7x", "set upstream.registry.id_bytes = 8"),
        (LONG, b"\0\0\0\0\7xxxx", "set upstream.registry.id_bytes = 4"),
        (SHORT, b"\1" + UUID(int=7).bytes, "GUID"),
    ],
)
def test_a_record_without_an_id_says_what_it_has_instead(wire: Wire, record: bytes, said: str) -> None:
    with pytest.raises(NoId, match=said.replace("{", r"\{")):
        wire.split(record)


def test_confluents_guid_is_refused_by_name() -> None:
    written = SchemaId("AVRO", guid=str(UUID(int=1 << 127 | 5))).guid_to_bytes()
    with pytest.raises(NoId, match="GUID"):
        SHORT.split(written)
