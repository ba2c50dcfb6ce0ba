"""Arrow's parser for a batch of JSON objects: the columns of all that it takes, and which ones it does not take.

What it might read otherwise than tokens.py (half surrogates, two objects in one record, an object followed by
`null`, which crashes it) is looked for in the bytes first. It stops at the first object that does not fit its
schema, so that the rest is parsed twice if there is one.
"""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

_ROOT_NULL = re.compile(rb"\}\s*n")
_TWO = re.compile(rb"\}\s*\{")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ROW = re.compile(r" in row (\d+)")
_VALUE = re.compile(r"couldn't parse:(\S+)|: (\S+) requires ")

_WINDOW = 256
"""Objects parsed at a time while those are looked for that do not fit: one in a hundred is usual."""


def parse(values: Sequence[bytes], joined: bytes, schema: pa.Schema) -> tuple[dict[str, pa.Array], Sequence[int]]:
    """(the columns of the objects that were parsed, one row each; the indices of those objects, rising).

    joined: the objects, one a line.
    """
    table, kept = _parsed(values, joined, schema)
    return {name: _combined(table[name]) for name in schema.names}, kept


def _combined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _parsed(values: Sequence[bytes], joined: bytes, schema: pa.Schema) -> tuple[pa.Table, Sequence[int]]:
    kept: Sequence[int] = range(len(values))
    for suspicious, is_odd in _ODD:
        if suspicious(joined, len(values)):
            kept = [i for i in kept if not is_odd(values[i])]
    if len(kept) < len(values):
        joined = b"\n".join([values[i] for i in kept])
    table = _read(joined, schema)
    if isinstance(table, pa.Table) and table.num_rows == len(kept):
        return table, kept
    for careful in (False, True):
        kept = _fitting(values, kept, schema, careful)
        table = _read(b"\n".join([values[i] for i in kept]), schema)
        if isinstance(table, pa.Table) and table.num_rows == len(kept):
            return table, kept
    return schema.empty_table(), []


def _no_objects_a_line(joined: bytes, count: int) -> bool:
    return not (
        joined.startswith(b"{")
        and joined.endswith(b"}")
        and joined.count(b"\n") == joined.count(b"}\n{") == count - 1
    )


def _is_no_line(value: bytes) -> bool:
    return b"\n" in value or not (value.startswith(b"{") and value.endswith(b"}"))


def _is_no_text(value: bytes, _count: int = 0) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


_ODD: tuple[tuple[Callable[[bytes, int], bool], Callable[[bytes], Any]], ...] = (
    (_no_objects_a_line, _is_no_line),
    (lambda joined, _: _ROOT_NULL.search(joined) is not None, _ROOT_NULL.search),
    (lambda joined, _: _SURROGATE.search(joined) is not None, _SURROGATE.search),
    (_is_no_text, _is_no_text),
)
"""What is looked for in all objects at once, and then in each."""


def _fitting(values: Sequence[bytes], kept: Sequence[int], schema: pa.Schema, careful: bool) -> list[int]:
    """Those that fit the schema, each exactly one object.

    careful: those before one that does not fit are parsed again, as their numbers were not converted.
    """
    left = [i for i in kept if _TWO.search(values[i]) is None or _alone(values[i], schema)]
    joined = pa.py_buffer(b"\n".join([values[i] for i in left]))
    starts = [0, *accumulate(len(values[i]) + 1 for i in left)]
    odd, at, width = set[int](), 0, _WINDOW
    while at < len(left):
        end = min(at + width, len(left))
        found = _read(joined.slice(starts[at], starts[end] - 1 - starts[at]), schema)
        if isinstance(found, pa.Table):
            at, width = end, _WINDOW
        elif end - at == 1 or " in row 0" in found:
            odd.add(left[at])
            at, width = at + 1, _WINDOW
            if len(odd) > _WINDOW and 4 * len(odd) > at:
                return [i for i in left[:at] if i not in odd]  # the rest is left out: it will be the same there
        elif (row := _ROW.search(found)) is not None and int(row[1]) < end - at:
            if careful:
                width = int(row[1])
            else:
                odd.add(left[at + int(row[1])])
                at += int(row[1]) + 1
        elif (text := _VALUE.search(found)) is not None and (
            those := [n for n in range(at, end) if (text[1] or text[2]).encode() in values[left[n]]]
        ):
            # a number that its type cannot hold: which one is not said, so the first object that has these digits
            width = those[0] - at or 1
        else:
            width = (end - at) // 2
    return [i for i in left if i not in odd]


def _alone(value: bytes, schema: pa.Schema) -> bool:
    found = _read(value, schema)
    return not isinstance(found, pa.Table) or found.num_rows == 1


def _read(joined: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table | str:
    """The objects as a table, or why they cannot be parsed."""
    size = len(joined) if isinstance(joined, bytes) else joined.size
    if not size:
        return schema.empty_table()
    try:
        return pj.read_json(
            pa.BufferReader(joined),
            pj.ReadOptions(use_threads=False, block_size=size + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, ValueError) as exc:
        return str(exc)
