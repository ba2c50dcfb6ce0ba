"""A tree of options as the text of a config file: TOML, which is read back as the same tree."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def spell_toml(tree: Mapping[str, Any]) -> str:
    """A section for each table, one for each of a list of tables; what is deeper is on one line."""
    plain = {key: value for key, value in tree.items() if not isinstance(value, Mapping) and not _tables(value)}
    parts = [_section("", plain)] if plain else []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            parts.append(_section(f"[{_key(key)}]\n", value))
        elif _tables(value):
            parts += [_section(f"[[{_key(key)}]]\n", one) for one in value]
    return "\n".join(parts)


def _tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _section(head: str, options: Mapping[str, Any]) -> str:
    return head + "".join(
        f"{_key(key)} = {spell_value(value)}\n" for key, value in options.items() if value is not None
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else spell_value(key)


def spell_value(value: Any) -> str:
    """On one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {spell_value(one)}" for key, one in value.items() if one is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(spell_value(one) for one in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
