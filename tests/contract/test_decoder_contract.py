"""The formats of records against the suite for formats, with the one that CONTRIBUTING.md shows."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from decoder_contract import DecoderContract, Row

from backfill_cli import registry
from backfill_cli.contracts.decoder import Asked, Decode
from backfill_cli.decode import canal, debezium, json_rows, maxwell, mongodb, open_protocol, plain

PACKAGE = Path(__file__).parents[1] / "decoder_package"


def loaded(name: str) -> Any:
    """A module of the example's package, which is not installed: its entry point would be known to other tests."""
    spec = importlib.util.spec_from_file_location(name, PACKAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class TestLogfmt(DecoderContract):
    decoder = loaded("logfmt_decoder").decoder

    def record(self, row: Row) -> bytes:
        return " ".join(f"{name}={value}" for name, value in row.items()).encode()


class TestJson(DecoderContract):
    decoder = json_rows.decoder

    def record(self, row: Row) -> bytes:
        return json.dumps(row).encode()

    def scalar(self, value: int) -> bytes:
        return b"%d" % value


class TestDebezium(DecoderContract):
    decoder = debezium.decoder

    def record(self, row: Row) -> bytes:
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "ts_ms": 5}
        return json.dumps({"before": None, "after": row, "source": source, "op": "c", "ts_ms": 6}).encode()


class TestMaxwell(DecoderContract):
    decoder = maxwell.decoder

    def record(self, row: Row) -> bytes:
        told = {"database": "shop", "table": "t", "type": "insert", "ts": 5, "xid": 7, "commit": True}
        return json.dumps({**told, "data": row}).encode()


class TestCanal(DecoderContract):
    decoder = canal.decoder

    def record(self, row: Row) -> bytes:
        told = {"id": 1, "database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "es": 5, "ts": 6}
        types = dict.fromkeys(row, "text")
        data = [{name: str(value) for name, value in row.items()}]
        return json.dumps({**told, "mysqlType": types, "data": data, "old": None, "pkNames": ["id"]}).encode()


class TestOpenProtocol(DecoderContract):
    decoder = open_protocol.decoder

    def record(self, row: Row) -> bytes:
        row = {name: {"t": 8 if name == "id" else 15, "f": 0, "v": value} for name, value in row.items()}
        key, value = (json.dumps(one).encode() for one in ({"ts": 5, "scm": "s", "tbl": "t", "t": 1}, {"u": row}))
        told = (1).to_bytes(8, "big") + len(key).to_bytes(8, "big") + key
        return len(told).to_bytes(8, "big") + told + len(value).to_bytes(8, "big") + value


class TestMongo(DecoderContract):
    decoder = mongodb.decoder
    columns = "_id BIGINT, note STRING"
    rows: ClassVar[Sequence[Row]] = ({"_id": 1, "note": "a"}, {"_id": -(2**63), "note": "ü"})
    has_names = False

    def record(self, row: Row) -> bytes:
        source = {"connector": "mongodb", "db": "shop", "collection": "t", "ts_ms": 5}
        return json.dumps(
            {"before": None, "after": json.dumps(row), "source": source, "op": "c", "ts_ms": 6}
        ).encode()

    def asked(self, **more: Any) -> Asked:
        return replace(super().asked(**more), key=("_id",))


class TestBytes(DecoderContract):
    decoder = plain.decoder
    columns = "value BINARY"
    rows: ClassVar[Sequence[Row]] = ({"value": b"a"}, {"value": b"\x00\xff"})
    has_names = False

    def record(self, row: Row) -> bytes:
        return bytes(row["value"])


def test_every_format_of_ours_is_here() -> None:
    here = {type(one.decoder) for one in DecoderContract.__subclasses__()}
    assert {type(registry.decoder(name)) for name in registry.known(registry.DECODERS)} <= here


def test_the_suite_finds_a_format_that_takes_rows_of_other_columns() -> None:
    """As the example did: copied, it made columns NULL that a record had left out."""

    class Careless(TestLogfmt):
        def decode(self, **more: Any) -> Decode:
            return replace(super().decode(**more), whole=None)  # type: ignore[type-var]

    with pytest.raises(AssertionError):
        Careless().test_rows_that_change_a_snapshots_have_its_columns()
