"""A schema of a registry and its references, as message types."""

import re
from collections.abc import Mapping

from backfill_cli.decode.protobuf import descriptors, text
from backfill_cli.decode.protobuf.files import File
from backfill_cli.decode.protobuf.known import known
from backfill_cli.decode.protobuf.types import Types, linked

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")


def types_of(schema: str, references: Mapping[str, str]) -> Types:
    """The types of a schema. references: by the path of the import, what it is: each a text or a descriptor.

    Raises Unsupported.
    """
    return linked(_file(schema), {**known(), **{path: _file(one) for path, one in references.items()}})


def _file(schema: str) -> File:
    """A text has a mark that base64 does not have, if it defines anything."""
    return (descriptors.read if _BASE64.fullmatch(schema) else text.parsed)(schema)
