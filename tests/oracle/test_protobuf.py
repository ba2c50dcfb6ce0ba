"""Protobuf by columns and one by one, against Google's library: 10,000 messages of generated schemas a run."""

import json
import random
from base64 import b64decode
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from backfill_cli.decode.protobuf.columns import read
from backfill_cli.decode.protobuf.connect import connect
from backfill_cli.decode.protobuf.one import token
from backfill_cli.decode.protobuf.schema import types_of
from backfill_cli.decode.protobuf.types import Types
from backfill_cli.decode.tokens import Constant, Number, Token
from backfill_cli.decode.unreadable import Unreadable
from oracle import protobuf_inputs as inputs
from oracle import protobuf_types, typed
from oracle.inputs import SEED
from oracle.readers.protobuf_rows import ODD, Refused, exact, has_odd, row

SCHEMAS, MESSAGES = 100, 100
"""As many of each schema."""


@pytest.mark.parametrize("some", range(4))
def test_messages_are_read_as_googles_library_reads_them(some: int) -> None:
    for number in range(some, SCHEMAS, 4):
        rng = random.Random(SEED + number)
        made = inputs.file(rng, number)
        name = f"{made.package}.M0"
        types = types_of(inputs.text(made) if rng.random() < 0.5 else inputs.base64(made), {})
        library = inputs.classes(made)
        kinds = [rng.randint(0, 3) for _ in range(MESSAGES)]
        payloads = [_payload(rng, library.DESCRIPTOR, kind) for kind in kinds]
        fields = connect(types, name)["fields"]
        wanted = pa.schema([(f["field"], asked(f)) for f in fields if is_kept(f)])
        columns, kept = read(payloads, types, name, wanted)
        by_columns = {i: {one: columns[one][n].as_py() for one in wanted.names} for n, i in enumerate(kept)}
        for i, payload in enumerate(payloads):
            expected = _expected(library, payload)
            place = f"schema {number}, message {i}: {payload.hex()}"
            _assert_one(payload, types, name, wanted, expected, place)
            if i in by_columns and (expected is not None or len(wanted) == len(fields)):
                assert expected is not None, place
                for one in wanted:
                    found = of_arrow(by_columns[i][one.name], one.type, expected[one.name])
                    assert found == expected[one.name], place
            elif i not in by_columns and kinds[i] < 2:
                assert expected is None or has_odd(expected), f"{place}: left out, though nothing about it is rare"


def _assert_one(
    payload: bytes, types: Types, name: str, wanted: pa.Schema, expected: dict[str, Any] | None, place: str
) -> None:
    if expected is None:
        with pytest.raises(Unreadable):
            token(payload, types, name)
        return
    told = token(payload, types, name)
    assert set(told) == set(expected), place
    for one in wanted:
        assert of_token(told[one.name], one.type, expected[one.name]) == expected[one.name], place


@pytest.mark.parametrize("number", range(40))
def test_a_schema_is_the_same_as_text_and_as_a_descriptor(number: int) -> None:
    made = inputs.file(random.Random(SEED + number), number)
    assert shape(types_of(inputs.text(made), {})) == shape(types_of(inputs.base64(made), {}))


def shape(types: Types) -> Any:
    """What types are, whatever the order of their fields."""
    return {name: one.by_number for name, one in types.messages.items()}, types.enums


def _payload(rng: random.Random, of: Any, kind: int) -> bytes:
    if kind < 2:
        return inputs.written(rng, of, False)
    return (
        inputs.written(rng, of, True)
        if kind == 2
        else inputs.broken(rng, inputs.written(rng, of, rng.random() < 0.5))
    )


def _expected(library: Any, payload: bytes) -> dict[str, Any] | None:
    message = library()
    try:
        message.ParseFromString(payload)
        return row(message)
    except (DecodeError, Refused, UnicodeDecodeError):
        return None


def is_kept(told: Any) -> bool:
    kind = told["type"]
    if kind == "struct":
        return bool(told["fields"]) and all(map(is_kept, told["fields"]))
    inner = told.get("items") or told.get("values")
    return is_kept(inner) if inner else kind not in ("recursive", "group")


def asked(told: Any) -> pa.DataType:
    """The type in which a field is asked for."""
    match told["type"]:
        case "struct":
            return pa.struct([(f["field"], asked(f)) for f in told["fields"]])
        case "array":
            return pa.list_(asked(told["items"]))
        case "map":
            return pa.map_(pa.string(), asked(told["values"]))
        case "float" | "double":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "string":
            return pa.string()
        case "bytes":
            return pa.binary()
    return pa.int64()


def of_arrow(value: Any, kind: pa.DataType, like: Any) -> Any:
    """A value of Arrow as the oracle has it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: of_arrow(value[f.name], f.type, (like or {}).get(f.name)) for f in kind}
    if pa.types.is_map(kind):
        assert len({k for k, _ in value}) == len(value), "a key twice"
        return {k: of_arrow(v, kind.item_type, (like or {}).get(k)) for k, v in value}
    if pa.types.is_list(kind):
        likes = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
        return [of_arrow(one, kind.value_type, alike) for one, alike in zip(value, likes, strict=True)]
    return of_leaf(value, kind, like)


def of_leaf(value: Any, kind: pa.DataType, like: Any) -> Any:
    if isinstance(like, tuple):
        return "json", json.loads(value)
    return exact(value) if pa.types.is_floating(kind) else value


def of_token(value: Token, kind: pa.DataType, like: Any) -> Any:
    """A token as the oracle has it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: of_token(value[f.name], f.type, (like or {}).get(f.name)) for f in kind}
    if pa.types.is_map(kind):
        return {k: of_token(v, kind.item_type, (like or {}).get(k)) for k, v in value.items()}
    if pa.types.is_list(kind):
        likes = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
        return [of_token(one, kind.value_type, alike) for one, alike in zip(value, likes, strict=True)]
    if pa.types.is_integer(kind):
        return int(value) if isinstance(value, Number) else ODD
    if pa.types.is_floating(kind):
        assert isinstance(value, Number | Constant)
        return exact(float(value))
    if pa.types.is_binary(kind):
        return b64decode(value, validate=True)
    if pa.types.is_boolean(kind):
        assert isinstance(value, bool)
        return value
    return of_leaf(str(value), kind, like)


def test_the_page_of_types_says_what_they_become() -> None:
    typed.checked("protobuf", protobuf_types.table())
