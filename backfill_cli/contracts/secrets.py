"""How a connector's options say which of them hold secrets: marks in `Annotated[...]`.

The marks are read when a config is checked. An option without a mark counts as a secret if its name suggests it
(`password`, `client.secret`).
"""

from dataclasses import dataclass


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
