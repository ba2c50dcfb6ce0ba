"""Model values as JSON text and back, exactly: the form in which the catalog and the sinks keep them.

A field added later, with a default, gets its default when older text is read; a field that this version does not
know is ignored. Non-finite floats are written as Python's JSON writes them (`Infinity`, `NaN`).
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


# Building an adapter takes 5-50 ms, and importing pydantic longer: do it late, and once per type.
_ADAPTERS: dict[type, "TypeAdapter[Any]"] = {}


def _adapter(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


class Pairs:
    """Annotates a mapping whose keys are not strings: in JSON it is a list of `[key, value]`."""

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
