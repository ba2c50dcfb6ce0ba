"""What a connector's options say of themselves, and what `init` finds out about them from data."""

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


# Marks in `Annotated[...]`, read when a config is checked or written out. An option without a mark counts as a
# secret if its name suggests it (`password`, `client.secret`).


@dataclass(frozen=True, slots=True)
class Example:
    """A first job sets this option: `init` writes it out with this value, to be checked and filled in.

    value: as in TOML; left out for an option that is itself a table, as the table's own options provide theirs.
    """

    value: Any = None


@dataclass(frozen=True, slots=True)
class Secret:
    """The option holds a secret: its value must be a reference, `${env:NAME}` or `${file:PATH}`."""


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """In a table with free keys, these keys hold secrets too."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class NoSecret:
    """The option and everything in it holds no secret, whatever the names suggest: a schema of columns."""


STORED = {"stored": True}
"""Validation context for a config from the catalog: a config that was accepted once must not block its job."""
