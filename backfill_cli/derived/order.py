"""Several derived tables of a job, each after those that it reads."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backfill_cli.derived.engines import ENGINES, Engine
from backfill_cli.derived.reading import refusal
from backfill_cli.derived.rows import Maintained, maintained
from backfill_cli.derived.whole import cte_of
from backfill_cli.model.derived import Base, Derived


def ordered(
    derived: Sequence[Derived], bases: Sequence[Base], targets: Mapping[str, str], system: str
) -> tuple[Maintained, ...]:
    """Each can read the tables that are its bases and all derived tables before it. targets: by name, as SQL.

    Raises UsageError for one that cannot be kept, and for two that read each other.
    """
    return _ordered(tuple(derived), tuple(bases), tuple(sorted(targets.items())), system)


@lru_cache(maxsize=8)  # each commit asks, and parsing takes longer than a small commit
def _ordered(
    derived: tuple[Derived, ...], bases: tuple[Base, ...], targets: tuple[tuple[str, str], ...], system: str
) -> tuple[Maintained, ...]:
    engine = ENGINES[system]
    left, known, made, sql = list(derived), list(bases), list[Maintained](), dict(targets)
    while left:
        waiting = {name: one.name for one in left for name in _spelt(one, engine)}
        ready = [one for one in left if not {waiting[name] for name in _named(one, engine) & waiting.keys()}]
        if not ready:
            names = ", ".join(repr(one.name) for one in left[1:])
            what = f"it reads {names}, which read it" if names else "it reads itself"
            raise refusal(left[0].name, what, "let each read tables, and derived tables that do not read it")
        found = [_kept(one, known, system) for one in ready]
        known += [one.base((one.derived.name, one.derived.target), sql[one.derived.name]) for one in found]
        made += found
        left = [one for one in left if one not in ready]
    return tuple(made)


def _kept(derived: Derived, bases: Sequence[Base], system: str) -> Maintained:
    """As `maintained`. A result whose columns are not named would have another one once a table gains a column."""
    found = maintained(derived, bases, system)
    tree = sqlglot.parse_one(derived.sql, dialect=system)
    if isinstance(tree, exp.Query) and tree.is_star:
        what = "SELECT *: the result would change with the columns of a table"
        raise refusal(derived.name, what, "name each column")
    return found


def _spelt(derived: Derived, engine: Engine) -> set[str]:
    """What a SELECT may call it."""
    return {engine.name(name, quoted) for name in (derived.name, derived.target) for quoted in (True, False)}


def _named(derived: Derived, engine: Engine) -> set[str]:
    """The names of tables in its SELECT, as they are compared; of one that cannot be read, which is refused
    elsewhere, none.
    """
    try:
        tree = sqlglot.parse_one(derived.sql, dialect=engine.dialect)
    except (SqlglotError, RecursionError):
        return set()
    tables = [
        [_name(part, engine) for part in one.parts]
        for one in tree.find_all(exp.Table)
        if cte_of(one, engine) is None
    ]
    return {name for parts in tables for name in (parts[-1], ".".join(parts))}


def _name(part: exp.Expr, engine: Engine) -> str:
    return engine.name(part.name, bool(part.args.get("quoted")))
