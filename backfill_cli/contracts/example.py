"""How a connector's options say what `backfill init` writes out: a mark in `Annotated[...]`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """A first job sets this option: `init` writes it out with this value, to be checked and filled in.

    value: as in TOML; left out for an option that is itself a table, as the table's own options provide theirs.
    """

    value: Any = None
