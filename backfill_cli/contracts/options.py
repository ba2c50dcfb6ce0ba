"""What a connector's options say of themselves, and what `init` finds out about them from data."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from backfill_cli.errors import BackfillError, Hint, UsageError
from backfill_cli.model.units import nearest_first, spell_known


@dataclass(frozen=True, slots=True)
class Told:
    """One option. value: None if it could not be determined and is to be filled in. why: what it is based on.

    example: a value to fill in, as a command line has it; empty if the data suggests none.
    """

    value: Any
    why: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """Where data is, as a user names it: `init --from TEXT --changes TEXT --table NAME --key COLUMNS`.

    text: a path as it was typed, relative to the current folder; or a URL, its secrets resolved. written: what a
    config says in its place: without secrets, a path relative to the config's folder. changes: where changes are,
    for this same connector. tables, key: empty if the data is to show them. values: of `written`'s references.
    """

    text: str
    written: str
    changes: "Named | None" = None
    tables: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the job. key: its columns; none if the upstream itself knows the key.

    old_keys: whether its changes contain the old key of a key change; if not, the job relies on a promise.
    """

    name: str
    key: Told
    old_keys: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """The tables that were found, and the upstream's options by their path below `[upstream]`: `snapshot.path`.

    said: what was found, for a person, in at most three lines. conf: settings for `[spark.conf]`.
    """

    tables: Sequence[FoundTable]
    options: Mapping[str, Told]
    said: Sequence[str] = ()
    conf: Mapping[str, Told] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class FilePath:
    """The option is a path on this machine, or a URI: a relative path is relative to the config's folder.

    names: whether it can also be a name of something else, such as a table in a catalog; a path then has a `/`.
    words: values that are no paths. keys: of a table with free keys, those whose values are paths.
    """

    names: bool = False
    words: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ByTable:
    """The option can be a table of values by the names of the job's tables, or of their partitions, `orders/0`.

    A table that joins a job brings its own, and one that leaves takes it along. Where the option is one text for
    all tables, `{table}` in it stands for the table's name.
    """


STORED = {"stored": True}
"""Validation context for a config from the catalog: a config that was accepted once must not block its job."""


def named_after(text: str) -> str:
    """A name for a table that a job fills: of lower case letters, digits and `_`."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_") or "rows"


def require_columns(named: Named, columns: Sequence[str]) -> None:
    """The key that the user names is of these columns. Raises UsageError."""
    missing = next((name for name in named.key if name not in columns), None)
    if missing is not None:
        raise UsageError(
            f"--key: column {missing!r} does not exist{spell_known(missing, columns, 'columns')}",
            f"name columns that identify a row: --key {shlex.quote(nearest_first(missing, columns)[0])}",
        )


@contextmanager
def without_config(correct: Hint | str) -> Iterator[None]:
    """While a connector looks: what asks for a change of the config, or is tried again by itself, has this hint.

    correct: how to name the place otherwise.
    """
    try:
        yield
    except BackfillError as error:
        if error.hint.config or error.hint.retried:
            raise UsageError(error.message, correct) from error
        raise
