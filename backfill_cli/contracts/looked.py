"""What `backfill init` finds out by looking at an upstream's data, for the config that it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """One option. value: None where it cannot be told: it is left to be filled in. why: what it was taken from."""

    value: Any
    why: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """A job's table, and the options of its upstream by their path below `[upstream]`: `snapshot.path`.

    old_keys: whether its changes tell the old key of a key change; where not, the job takes a promise.
    """

    table: str
    key: Told
    options: Mapping[str, Told]
    old_keys: bool = True
