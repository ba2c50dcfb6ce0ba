"""Placeholders (unsent.py) in columns, a batch at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from backfill_cli.decode import unsent
from backfill_cli.decode.arrow_values import either
from backfill_cli.decode.encodings import Encoding
from backfill_cli.formats.compute import pc
from backfill_cli.model.schema import SparkType


@dataclass(frozen=True, slots=True)
class Placeholders:
    """BOOLEAN without NULLs; None: false everywhere.

    lacks: whether a placeholder stands for a value. doubtful: whether a nested value may be one, or have one in
    it, which plain Python says.
    """

    lacks: pa.Array | None = None
    doubtful: pa.Array | None = None


def placeholders(raw: pa.Array, how: Encoding, target: SparkType) -> Placeholders:
    """Those among the values of a column, as they were read. how, target: of the column."""
    found = _suspects(raw, how, target)
    if found is None or not pc.any(found).as_py():
        return Placeholders()
    return Placeholders(found) if isinstance(target, str) else Placeholders(None, found)


def _suspects(raw: pa.Array, how: Encoding, target: SparkType) -> pa.Array | None:
    """Which values are placeholders, or nested ones that may have one in them."""
    if isinstance(target, str):
        texts = unsent.placeholders(how, target)
        if not texts or not (pa.types.is_string(raw.type) or pa.types.is_binary(raw.type)):
            return None
        one_of = pa.array(unsent.bytes_of(texts) if pa.types.is_binary(raw.type) else texts, raw.type)
        return pc.fill_null(pc.is_in(raw, one_of), False)
    if pa.types.is_struct(raw.type):
        parts = {one["name"]: one["type"] for one in target["fields"]}
        return reduce(
            either, (_suspects(pc.struct_field(raw, [one]), form, parts[one]) for one, form in how.inner), None
        )
    return _in_lists(raw, how, target)


def _in_lists(raw: pa.Array, how: Encoding, target: dict[str, Any]) -> pa.Array | None:
    """The same of arrays and maps."""
    is_map = pa.types.is_map(raw.type)
    entries = raw.view(pa.list_(raw.type.field(0))) if is_map else raw
    flat, ((_, form),) = entries.flatten(), how.inner
    values = pc.struct_field(flat, [1]) if is_map else flat
    found = _suspects(values, form, target["valueType" if is_map else "elementType"])
    if is_map:
        found = either(found, pc.fill_null(pc.equal(pc.struct_field(flat, [0]), unsent.UNAVAILABLE), False))
    within = None
    if found is not None and pc.any(found).as_py():
        parents = pc.list_parent_indices(entries).filter(found)
        within = pc.is_in(pa.array(range(len(raw)), parents.type), parents)
    return either(within, None if is_map else _spelled(entries))


def _spelled(lists: pa.Array) -> pa.Array | None:
    """Which arrays have an element for each byte of the placeholder, and may have its first one."""
    many = pc.fill_null(pc.equal(pc.list_value_length(lists), len(unsent.UNAVAILABLE)), False)
    if pa.types.is_string(lists.type.value_type) or not pc.any(many).as_py():
        return None
    if not pa.types.is_floating(lists.type.value_type) and not pa.types.is_integer(lists.type.value_type):
        return many
    first = pc.list_element(pc.if_else(many, lists, pa.scalar(None, lists.type)), 0)
    return pc.fill_null(pc.equal(first, ord(unsent.UNAVAILABLE[0])), False)


def names(masks: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """`own.UNSENT`: of each row the names whose masks are true, NULL if there are none."""
    kind = pa.list_(pa.string())
    if not masks:
        return pa.nulls(rows, kind)
    marked = (pc.if_else(mask, pa.scalar(f"{i} "), pa.scalar("")) for i, mask in enumerate(masks.values()))
    told = pc.binary_join_element_wise(*marked, "").dictionary_encode()
    of = list(masks)
    lists = [[of[int(i)] for i in one.split()] or None for one in told.dictionary.to_pylist()]
    return pa.array(lists, kind).take(told.indices)
