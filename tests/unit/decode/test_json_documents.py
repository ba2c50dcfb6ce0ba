"""JSON as documents: the same document wherever a schema block stands."""

import json

import pyarrow as pa
import pytest

from backfill_cli.decode.json_documents import IN_BLOCKS, PLAIN
from backfill_cli.decode.unreadable import Unreadable

BLOCK = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
TEXT, INNER = json.dumps(BLOCK), '{"op":"c","id":1}'


@pytest.mark.parametrize(
    "record",
    [
        f'{{"schema":{TEXT},"payload":{INNER}}}',
        f'{{"schema":{TEXT}, "payload": {INNER}}}',
        f' {{ "schema" : {TEXT} , "payload" : {INNER} }}\n',
        f'{{"payload":{INNER},"schema":{TEXT}}}',
        f'{{"schema":{TEXT},"payload":{INNER},"more":1}}',
    ],
)
def test_a_document_is_taken_out_of_its_block_wherever_that_stands(record: str) -> None:
    (group,), faults = IN_BLOCKS.groups([record.encode()])
    assert (group.schema, group.token(0), faults) == (BLOCK, {"op": "c", "id": "1"}, {})


def test_records_with_one_block_are_one_group_that_is_read_by_columns() -> None:
    beside = f'{{"schema":{TEXT},"payload":{{"id":7}}}}'.encode()
    groups, _ = IN_BLOCKS.groups([beside, b'{"id":1}', None, beside, b'{"schema":null,"payload":{"id":2}}'])
    read = {tuple(group.at): group.read(pa.schema([("id", pa.int64())])) for group in groups}
    found = {at: (columns["id"].to_pylist(), [*kept]) for at, (columns, kept) in read.items()}
    assert found == {(0, 3): ([7, 7], [0, 1]), (1, 4): ([1, 2], [0, 1])}


def test_a_block_between_other_members_is_refused() -> None:
    (group,), _ = IN_BLOCKS.groups([f'{{"more":1,"schema":{TEXT},"payload":{INNER}}}'.encode()])
    with pytest.raises(Unreadable, match="not Kafka Connect's JSON"):
        group.token(0)


def test_plain_rows_keep_members_that_are_named_like_a_block() -> None:
    (group,), _ = PLAIN.groups([f'{{"schema":1,"payload":{INNER}}}'.encode()])
    assert group.token(0) == {"schema": "1", "payload": {"op": "c", "id": "1"}}
