"""Says which column of an envelope that could not be parsed has JSON of another kind than what is read from it."""

import json
from collections.abc import Mapping, Sequence

from backfill_cli.formats.values import Encoding, raw_type
from backfill_cli.model.schema import Columns, SparkType
from backfill_cli.spark.api import Column, F

_SINCE = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_WHOLE, _NUMBER = "BIGINT", "BIGINT|DOUBLE|DECIMAL.*|STRING"
_KINDS = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (_WHOLE, "a whole number")),
    **dict.fromkeys(("float", "double"), (_NUMBER, "a number")),
    "boolean": ("BOOLEAN", "true or false"),
    "string": ("(?!DOUBLE|DECIMAL).*", "a text, or a whole number"),
    "array": ("ARRAY.*", "an array"),
    **dict.fromkeys(("map", "struct"), ("OBJECT.*", "an object")),
}
"""By Spark type: the pattern of the variant types that the parser takes, beside NULL; and their name."""


def unlike(text: Column, columns: Columns, encodings: Mapping[str, Encoding], key: Sequence[str]) -> Column:
    """`column 'day': not a whole number of days since 1970: "x"`, of an envelope's text; NULL if all fit."""
    known = {name: _kind(encodings[name], column["type"]) for name, column in columns.items()}
    patterns = F.from_json(F.lit(json.dumps({n: f"^(VOID|{p})$" for n, (p, _) in known.items()})), _MAP)
    words = F.from_json(F.lit(json.dumps({n: word for n, (_, word) in known.items()})), _MAP)
    envelope = F.try_parse_json(text)

    def fault(path: str) -> Column:
        members = F.try_variant_get(envelope, path, "map<string,variant>")
        others = F.map_filter(
            members, lambda name, value: ~F.rlike(F.schema_of_variant(value), F.element_at(patterns, name))
        )
        if path.endswith("before"):
            others = F.map_filter(others, lambda name, _: name.isin(*key))
        first = F.get(F.map_entries(others), F.lit(0))
        said = F.to_json(F.struct(first["value"].alias("v")))
        return F.concat(
            F.lit("column '"), first["key"], F.lit("': not "), F.element_at(words, first["key"]), F.lit(": "),
            F.substr(said, F.lit(6), F.length(said) - 6),
        )  # fmt: skip

    return F.coalesce(*map(fault, ("$.after", "$.payload.after", "$.before", "$.payload.before")))


_MAP = "map<string,string>"


def _kind(how: Encoding, target: SparkType) -> tuple[str, str]:
    raw = raw_type(how, target)
    pattern, word = _KINDS[raw if isinstance(raw, str) else raw["type"]]
    if how.kind == "days":
        word += " of days since 1970"
    if how.kind == "units":
        word += f" of {_SINCE[how.unit or 'us']} since 1970"
    return pattern, word
