"""Reads a serialized FileDescriptorProto, the form in which Python's serializer registers a schema."""

from base64 import b64decode
from functools import cache
from typing import Any

from backfill_cli.decode.protobuf.files import EnumText, FieldText, File, MessageText, Reserved
from backfill_cli.decode.protobuf.known import DESCRIPTOR
from backfill_cli.decode.protobuf.one import token
from backfill_cli.decode.protobuf.text import parsed
from backfill_cli.decode.protobuf.types import Types, linked
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported

Told = dict[str, Any]


@cache
def _descriptor() -> Types:
    return linked(parsed(DESCRIPTOR), {})


def read(encoded: str) -> File:
    """The file whose descriptor this is, in base64. Raises Unsupported."""
    try:
        told = token(b64decode(encoded), _descriptor(), "google.protobuf.FileDescriptorProto")
    except (ValueError, Unreadable) as exc:
        raise Unsupported(f"neither the text of a .proto file nor a descriptor: {exc}") from None
    syntax = told["syntax"] or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise Unsupported(f"syntax {syntax!r} is not supported: only proto2 and proto3 are")
    imports = tuple(told["dependency"])
    return File(
        syntax,
        told["package"] or "",
        imports,
        tuple(imports[int(i)] for i in told["public_dependency"] if 0 <= int(i) < len(imports)),
        tuple(map(_message, told["message_type"])),
        tuple(map(_enum, told["enum_type"])),
    )


def _message(told: Told) -> MessageText:
    oneofs = [one["name"] for one in told["oneof_decl"]]
    return MessageText(
        told["name"] or "",
        tuple(_field(one, oneofs) for one in told["field"]),
        tuple(map(_message, told["nested_type"])),
        tuple(map(_enum, told["enum_type"])),
        bool((told["options"] or {}).get("map_entry")),
        Reserved(
            # a descriptor's ranges end before their end
            tuple((int(one["start"] or 0), int(one["end"] or 0) - 1) for one in told["reserved_range"]),
            tuple(told["reserved_name"]),
        ),
    )


def _field(told: Told, oneofs: list[str]) -> FieldText:
    label = told["label"] or "optional"
    index = told["oneof_index"]
    is_member = index is not None and not told["proto3_optional"]
    if is_member and not 0 <= int(index) < len(oneofs):
        raise Unsupported(f"field {told['name']!r} is in a oneof that is not there")
    return FieldText(
        told["name"] or "",
        int(told["number"] or 0),
        "group" if told["type"] == "group" else told["type_name"] or told["type"] or "",
        label if label != "optional" or told["proto3_optional"] else "",
        oneofs[int(index)] if is_member else None,
        dict(((told["options"] or {}).get("field_meta") or {}).get("params") or {}),
    )


def _enum(told: Told) -> EnumText:
    return EnumText(told["name"] or "", tuple((one["name"], int(one["number"] or 0)) for one in told["value"]))
