"""Whether a text is one JSON object and nothing else: what every reader of JSON asks before it parses."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

_LONE_SURROGATE = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
"""Half a character, which Java would write as a question mark."""


def is_whole_object(told: "Column") -> "Column":
    """Whether a STRING is one object: UTF-8, whole characters, no name twice, nothing after it. Never NULL."""
    from pyspark.sql import functions as F

    # Parsing alone would read the first of two objects, and the last of two values of one name.
    alone = F.try_parse_json(F.concat(F.lit("["), told, F.lit("]")))
    whole = F.is_valid_utf8(told) & told.rlike(r"^\s*\{") & ~told.rlike(_LONE_SURROGATE)
    whole &= alone.isNotNull() & F.try_variant_get(alone, "$[1]", "variant").isNull()
    return F.coalesce(whole, F.lit(False))


def is_rounded(told: "Column", names: Sequence[str]) -> "Column":
    """Whether a member of such a name, at any depth, is a number with a fraction. Never NULL for an object.

    names: members that `from_json` is told to read as text; it would give a double's digits (1.10 as 1.1).
    """
    from pyspark.sql import functions as F

    if not names:
        return F.lit(False)
    any_name = "|".join(f"\\Q{json.dumps(name, ensure_ascii=False)[1:-1]}\\E" for name in names)
    return told.rlike(f'"(?:{any_name})"\\s*:\\s*-?[0-9]+[.eE]')
