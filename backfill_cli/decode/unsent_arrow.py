"""Placeholders (unsent.py) in columns, a batch at once."""

from collections.abc import Mapping

import pyarrow as pa

from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.unsent import bytes_of, placeholders
from backfill_cli.formats.compute import pc
from backfill_cli.model.schema import SparkType


class Placeholders:
    """told: how each column is written, and its type; one of a nested type has none here."""

    def __init__(self, told: Mapping[str, tuple[Encoding, SparkType]]) -> None:
        self._texts = {name: texts for name, one in told.items() if (texts := placeholders(*one))}

    def lacks(self, name: str, raw: pa.Array) -> pa.Array | None:
        """Whether a placeholder stands for each value of a column, as it was read; None if none does."""
        texts = self._texts.get(name, ())
        if not texts or not (pa.types.is_string(raw.type) or pa.types.is_binary(raw.type)):
            return None
        one_of = pa.array(bytes_of(texts) if pa.types.is_binary(raw.type) else texts, raw.type)
        found = pc.fill_null(pc.is_in(raw, one_of), False)
        return found if pc.any(found).as_py() else None


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
