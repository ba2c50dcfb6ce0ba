"""Values of the model as JSON text and back, exactly: what the catalog and the sinks keep.

A field added later, with a default, is read from older text as its default; a field that this version does not
know is left out. Floats that are no numbers are written as Python's JSON writes them (`Infinity`, `NaN`).
"""

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

T = TypeVar("T")


def encode(value: object) -> str:
    """A dataclass of the model or the contracts as one line of JSON."""
    return json.dumps(_adapter(type(value)).dump_python(value, mode="json"), ensure_ascii=False)


def decode(kind: type[T], text: str) -> T:
    """The value that `encode` wrote. Raises ValueError for text that is not a `kind`."""
    value: T = _adapter(kind).validate_python(json.loads(text))
    return value


# Building an adapter takes 5-50 ms, and pydantic's import more: late, and once a type.
_ADAPTERS: dict[type, "TypeAdapter[Any]"] = {}


def _adapter(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


class Pairs:
    """Annotates a mapping whose keys are no strings: in JSON a list of `[key, value]`, for JSON's keys are."""

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            _mapping,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(_pairs),
        )


def _pairs(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(mapping.items())


def _mapping(value: Any) -> Any:
    return {tuple(k) if isinstance(k, list) else k: v for k, v in value} if isinstance(value, list) else value
