"""Which of the properties that a config gives to its tables an error is about."""

import re
from collections.abc import Mapping

from backfill_cli.errors import START_OVER

HINT = f"correct sink.properties in the config, then {START_OVER}"
"""A table keeps the properties with which it was created."""


def blamed(said: str, properties: Mapping[str, str]) -> str:
    """What to add to a message of the table format: the properties whose value it quotes; empty if none."""
    named = [f'"{name}" = "{value}"' for name, value in properties.items() if _quotes(said, value)]
    return f" (sink.properties has {', '.join(named)})" if named else ""


def _quotes(said: str, value: str) -> bool:
    """In quotes, or after a colon: a bare number or `true` there can be something else, such as a task's."""
    text = re.escape(value)
    if re.search(rf"([\"'`]){text}\1", said):
        return True
    is_word = re.search("[A-Za-z]", value) is not None and value.lower() not in ("true", "false")
    return is_word and re.search(rf": {text}(?![\w-])", said) is not None
