"""Client properties in a config: settings by name, of those that may be set (client_properties.py)."""

from collections.abc import Set
from typing import Annotated, Any

from pydantic import BeforeValidator

from backfill_cli.model.units import spell_known


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


Properties = dict[str, Annotated[str, BeforeValidator(_as_text)]]
"""TOML's `true` and `4` are written as the client takes them."""


def require_known(told: Properties, known: Set[str]) -> Properties:
    """The same. Raises ValueError for a property that a config may not set."""
    for name in told:
        if name not in known:
            listed = spell_known(name, sorted(known), "known")
            raise ValueError(f"{name!r} is not a client property that can be set{listed}")
    return told
