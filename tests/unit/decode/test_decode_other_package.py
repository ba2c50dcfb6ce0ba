"""What the example of a format in a package of its own shows to those who copy it."""

from pathlib import Path

import pytest

from backfill_cli.contracts.decoder import Asked
from backfill_cli.model.schema import columns_of

PACKAGE = Path(__file__).parents[2] / "decoder_package"
SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"note","type":"string","nullable":true,"metadata":{}}]}'
)


def test_rows_that_change_a_snapshots_have_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    import logfmt_decoder

    whole = (frozenset({"seen"}), frozenset({"id", "note"}))
    columns = columns_of(SCHEMA)
    asked = Asked("topic 'orders'", "orders", "orders", ("id",), columns, {}, "upstream.value", whole)
    decode = logfmt_decoder.decoder.open(asked, columns, {}).decode(list)
    records = [b"id=1 note=a", b"id=1 note=a seen=1", b"id=1", b"id=1 note=a new=2", None]
    error = decode(records).error
    assert error is not None
    assert error.to_pylist() == [
        None,
        None,
        "column 'note' is not in its row",
        "column 'new' is new in its row",
        None,
    ]
