"""How a connector's options say which of them hold secrets: marks in `Annotated[...]`.

They are read when a config is checked. Where no mark stands, an option whose name says so
(`password`, `client.secret`) holds one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Secret:
    """The option holds a secret: its value is a reference, `${env:NAME}` or `${file:PATH}`, nothing else."""


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """Of a table with free keys, these hold secrets too."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class NoSecret:
    """The option, and all in it, holds none, whatever its name or the names in it say: a schema of columns."""


STORED = {"stored": True}
"""Context in which a config of the catalog is validated: what was taken once keeps no job from its end."""
