"""Whether a value that was parsed is one of Debezium's placeholders, as formats/unsent.py describes them."""

from backfill_cli.decode.tokens import Number, Token, written
from backfill_cli.formats.unsent import BYTES, SINGLY, UNAVAILABLE, part_of, placeholders
from backfill_cli.formats.values import Encoding
from backfill_cli.model.schema import SparkType

_NUMBERS = [float(byte) for byte in BYTES]


def is_unsent(token: Token, how: Encoding, target: SparkType) -> bool:
    """Whether a value is or contains a placeholder."""
    inner = dict(how.inner)
    match how.kind:
        case "array" if isinstance(token, list):
            return _in_array(token, inner[""], part_of(target, "elementType"))
        case "map" if isinstance(token, dict):
            of_value = part_of(target, "valueType")
            return UNAVAILABLE in token or any(is_unsent(one, inner[""], of_value) for one in token.values())
        case "struct" if isinstance(token, dict):
            return any(
                is_unsent(token.get(f["name"]), inner[f["name"]], f["type"]) for f in part_of(target, "fields")
            )
    text = written(token) if isinstance(token, dict) else token
    return isinstance(text, str) and text in placeholders(how, target)


def _in_array(tokens: list[Token], how: Encoding, element: SparkType) -> bool:
    """Whether one element is a placeholder, or there is an element for each of its bytes."""
    if any(is_unsent(one, how, element) for one in tokens):
        return True
    if len(tokens) != len(BYTES):
        return False
    match how.kind:
        case "plain" if element == "boolean":
            return all(one is True for one in tokens)
        case "plain" | "double" | "days" | "units" if element != "string":
            return all(isinstance(one, Number) for one in tokens) and [float(one) for one in tokens] == _NUMBERS
        case "unscaled":
            return tokens == SINGLY
        case "variable":
            return [one.get("value") if isinstance(one, dict) else None for one in tokens] == SINGLY
    return False
