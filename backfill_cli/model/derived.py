"""A derived table: a table of the sink that equals a SELECT over the job's tables at every checkpoint.

The law is in docs/design.md, *Derived tables*.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Derived:
    """target: as of a table. key: columns of the result; none: it is one row. sql: the SELECT as written.

    refresh: "full": computed whole by each commit that changes what it reads; "": row by row.
    """

    name: str
    target: str
    key: tuple[str, ...]
    sql: str
    refresh: str = ""

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Derived":
        """From a section of the config."""
        name = told["name"]
        refresh = told.get("refresh") or ""
        return Derived(name, told.get("target") or name, tuple(told.get("key") or ()), told["sql"], refresh)


@dataclass(frozen=True, slots=True)
class Filling:
    """How far a derived table is filled: `done` of `ranges` of a table that had about so many rows as it began."""

    table: str
    done: int
    ranges: int
    rows: int


@dataclass(frozen=True, slots=True)
class Base:
    """What a SELECT can read: a table of the job, or another derived table.

    names: what a SELECT may call it. sql: its target, quoted. key: columns that no two rows share, if `unique`.
    columns: all names, in the table's order. by: the columns that an epoch's changed rows are known by.
    nullable: whether these can be NULL.
    """

    name: str
    names: tuple[str, ...]
    sql: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    by: tuple[str, ...]
    unique: bool = True
    nullable: bool = False


def derived_in(config: str) -> tuple[Derived, ...]:
    """Those of a stored config, in its order."""
    return tuple(map(Derived.read, json.loads(config or "{}").get("derived", ())))
