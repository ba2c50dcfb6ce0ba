"""A .proto file as it is written: names are not resolved, options are gone but for Kafka Connect's parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_NUMBER = (1 << 29) - 1
"""Of a field."""
SCALARS = frozenset(
    ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string", "bytes"]
    + [f"{sign}fixed{bits}" for sign in ("", "s") for bits in (32, 64)]
)


@dataclass(frozen=True)
class FieldText:
    """type: one of SCALARS, `group`, or a name. oneof: its oneof's name, None for that of proto3's `optional`.

    label: `optional`, `required`, `repeated`, or none. params: of the option `confluent.field_meta`.
    """

    name: str
    number: int
    type: str
    label: str = ""
    oneof: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EnumText:
    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Reserved:
    """What no field of a message may have. ranges: of numbers, with their ends."""

    ranges: tuple[tuple[int, int], ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MessageText:
    """nested: in the order of their definition, with the entries that maps define."""

    name: str
    fields: tuple[FieldText, ...] = ()
    nested: tuple["MessageText", ...] = ()
    enums: tuple[EnumText, ...] = ()
    is_entry: bool = False
    reserved: Reserved = Reserved()


@dataclass(frozen=True)
class File:
    """syntax: `proto2` or `proto3`. public: those imports that whoever imports this file sees, too."""

    syntax: str
    package: str
    imports: tuple[str, ...]
    public: tuple[str, ...]
    messages: tuple[MessageText, ...]
    enums: tuple[EnumText, ...]
