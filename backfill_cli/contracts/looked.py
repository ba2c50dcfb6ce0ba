"""What `backfill init` finds out from an upstream's data, for the config that it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """One option. value: None if it could not be determined and is to be filled in. why: what it is based on."""

    value: Any
    why: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """A job's table, and the options of its upstream by their path below `[upstream]`: `snapshot.path`.

    old_keys: whether its changes contain the old key of a key change; if not, the job relies on a promise.
    """

    table: str
    key: Told
    options: Mapping[str, Told]
    old_keys: bool = True
