"""A schema of a registry and its references, as message types."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from backfill_cli.decode.protobuf import descriptors, text
from backfill_cli.decode.protobuf.files import File
from backfill_cli.decode.protobuf.known import known
from backfill_cli.decode.protobuf.one import KNOWN
from backfill_cli.decode.protobuf.types import Message, Types, linked
from backfill_cli.formats.schemas import Unsupported

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")


def types_of(schema: str, references: Mapping[str, str]) -> Types:
    """The types of a schema. references: by the path of the import, what it is: each a text or a descriptor.

    Raises Unsupported.
    """
    found = linked(_file(schema), {**known(), **{path: _file(one) for path, one in references.items()}})
    for name in KNOWN:
        if name in found.messages and _shape(found.messages[name]) != _shape(_known_types().messages[name]):
            raise Unsupported(f"it defines {name} otherwise than {name.partition('.')[0].title()} does")
    return found


@cache
def _known_types() -> Types:
    return linked(File("proto3", "", tuple(known()), (), (), ()), known())


def _shape(message: Message) -> Any:
    return {(one.name, one.number, one.kind, one.type, one.repeated) for one in message.fields}


def _file(schema: str) -> File:
    """A text has a mark that base64 does not have, if it defines anything."""
    return (descriptors.read if _BASE64.fullmatch(schema) else text.parsed)(schema)
