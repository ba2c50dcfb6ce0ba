"""How a connector's options say what `backfill init` writes out: a mark in `Annotated[...]`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """A first job gives this option: `init` writes it out, with this value, to be looked at and filled in.

    value: as TOML has it; of an option that is a table itself it is left out, the table's own options tell.
    """

    value: Any = None
