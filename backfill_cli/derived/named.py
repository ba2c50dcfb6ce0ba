"""Which columns of a table a SELECT can mean: those whose name stands in it."""

from collections.abc import Iterable
from functools import lru_cache

import sqlglot
from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.model.derived import Base, Derived


def named(base: Base, readers: Iterable[Derived], dialect: str) -> tuple[str, ...]:
    """The columns of its `by`, then the others that are named in one of these SELECTs, in the table's order; all
    others, where one has a star, or a row as a value.
    """
    said = [_said(one.sql, dialect) for one in readers]
    others = [name for name in base.columns if name not in base.by]
    if None not in said:
        others = [name for name in others if any(own.fold(name) in names for names in said if names is not None)]
    return (*base.by, *others)


@lru_cache(maxsize=64)  # each commit asks
def _said(sql: str, dialect: str) -> frozenset[str] | None:
    """All identifiers, folded; None where more can be meant than is named."""
    tree = sqlglot.parse_one(sql, dialect=dialect)
    stars = (one for one in tree.find_all(exp.Star) if not isinstance(one.parent, exp.Count))
    natural = (one for one in tree.find_all(exp.Join) if one.args.get("method"))
    if any(stars) or any(natural) or tree.find(exp.Columns) is not None:
        return None
    sources = {own.fold(one.alias_or_name) for one in tree.find_all(exp.Table, exp.Subquery, exp.CTE)}
    if any(not one.table and own.fold(one.name) in sources for one in tree.find_all(exp.Column)):
        return None
    return frozenset(own.fold(one.name) for one in tree.find_all(exp.Identifier))
