"""Columns of text, as in CSV: Arrow converts what is written as usual, plain Python (values.py) the rest."""

import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from backfill_cli.decode import stored, values
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.compute import pc
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import decimal_of
from backfill_cli.spark.failures import SHOWN

_FEW = 64
"""Arrow refuses a whole column for one value; so few of them are not halved further."""

_FLOAT = re.compile(r"([+-]?)(?:([0-9]+)[.]?([0-9]*)|[.]([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)\Z")
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_ZONE = r"(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)"
_USUAL = {
    "binary": r"[^\s\S]",  # none: Arrow takes a text for its bytes
    "boolean": r"(true|false)",
    "byte": r"-?[0-9]{1,2}",
    "short": r"-?[0-9]{1,4}",
    "integer": r"-?[0-9]{1,9}",
    "long": r"-?[0-9]{1,18}",
    **dict.fromkeys(("float", "double"), r"-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,3})?"),
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "timestamp": rf"{_TIME}{_ZONE}?",
    "timestamp_ntz": _TIME,
}
"""How most writers write a value: text that Arrow takes for the same value, or refuses."""


def of_text(text: str, kind: str) -> Any:
    """The value of a simple type in its stored form. Raises Unreadable with the text, if it is not exactly one."""
    bare = text if kind == "string" else _LINE_END.sub("", text)
    try:
        return _single(bare) if kind == "float" else values.of_text(bare, kind)
    except Unreadable as exc:
        raise Unreadable(f"{exc.args[0]}: {text[:SHOWN]}") from exc


def _single(text: str) -> float:
    """A FLOAT, rounded once: a DOUBLE between would round it twice."""
    told = _FLOAT.fullmatch(text)
    try:
        value: float = values.of_text(text, "double")
    except Unreadable:
        raise values.inexact("float") from None
    if told is None or not value:
        return value
    sign, whole, places, more, raised = (part or "" for part in told.groups())
    bare = f"{sign.strip('+')}{whole or 0}.{places or more or 0}e{raised or 0}"
    found: float = pa.array([bare]).cast(pa.float32())[0].as_py()
    if math.isinf(found):
        raise values.inexact("float")
    return found


def column(texts: pa.Array, kind: str) -> tuple[pa.Array, Mapping[int, str]]:
    """The values of a column of texts, and the reason at each index that has none: NULL stands there."""
    if kind == "string":
        return texts, {}
    usual = pc.fill_null(pc.match_substring_regex(texts, f"^(?:{_usual(kind)})$"), True)
    there = texts if pc.all(usual).as_py() else pc.if_else(usual, texts, pa.scalar(None, pa.string()))
    found, odd = _cast(there, kind, 0)
    odd += pc.indices_nonzero(pc.invert(usual)).to_pylist()
    if not odd:
        return found, {}
    faults: dict[int, str] = {}
    read = dict[int, Any]()
    for index, text in zip(odd, texts.take(pa.array(odd, pa.int64())).to_pylist(), strict=True):
        try:
            read[index] = of_text(text, kind)
        except Unreadable as exc:
            read[index], faults[index] = None, exc.args[0]
    mask = [False] * len(texts)
    for index in read:
        mask[index] = True
    given = stored.array([read[index] for index in sorted(read)], kind)
    return pc.replace_with_mask(found, pa.array(mask, pa.bool_()), given), faults


def are_usual(texts: pa.Array, kind: str) -> bool:
    """Whether all texts are written as most writers do it: Arrow takes each for the same value, or refuses it."""
    return bool(pc.all(pc.match_substring_regex(texts, f"^(?:{_usual(kind)})$")).as_py())


def _usual(kind: str) -> str:
    if not kind.startswith("decimal"):
        return _USUAL[kind]
    precision, scale = decimal_of(kind)
    whole = f"(0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    return f"-?{whole}([.][0-9]{{1,{scale}}})?" if scale else f"-?{whole}"


def _cast(texts: pa.Array, kind: str, first: int) -> tuple[pa.Array, list[int]]:
    """The values, and the indices, counted from `first`, of those that Arrow does not take: NULL stands there."""
    try:
        found = _by_arrow(texts, kind)
    except pa.ArrowInvalid:
        if len(texts) <= _FEW:
            odd = [first + index for index, text in enumerate(texts) if text.is_valid]
            return pa.nulls(len(texts), arrow_type(kind)), odd
        half = len(texts) // 2
        parts = [_cast(texts[:half], kind, first), _cast(texts[half:], kind, first + half)]
        return pa.concat_arrays([part for part, _ in parts]), [index for _, odd in parts for index in odd]
    if kind not in ("float", "double") or not pc.any(pc.is_inf(found)).as_py():
        return found, []
    endless = pc.fill_null(pc.is_inf(found), False)
    return found, [first + index for index in pc.indices_nonzero(endless).to_pylist()]


def _by_arrow(texts: pa.Array, kind: str) -> pa.Array:
    if kind != "timestamp":
        return texts.cast(arrow_type(kind))
    zoned = pc.match_substring_regex(texts, f"{_ZONE}$")
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(arrow_type(kind))
