"""Columns in the names of folders, as Hive and Spark write them: `dt=2024-01-02/region=eu/part-0.parquet`."""

import re
from collections.abc import Sequence

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")


def columns_of(name: str) -> Sequence[tuple[str, str | None]]:
    """The columns in a file's name below its place, and their values, from the outer folder on. None: NULL."""
    pairs = (folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder)
    return [(_plain(column), None if value == _NULL else _plain(value)) for column, _, value in pairs]


def beyond_ascii(name: str) -> bool:
    """Whether a name has escapes that some writers use for a byte of UTF-8, and others for a character."""
    return any(int(one, 16) >= 0x80 for one in _ESCAPE.findall(name))


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
