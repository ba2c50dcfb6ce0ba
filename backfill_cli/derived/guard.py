"""An expression of the key, where an engine may look for it before it has joined and filtered the rows.

The SELECT computes it for its own rows alone. Of others it can fail: a cast of text that is no number, which a
condition leaves out.
"""

from collections.abc import Iterator

from sqlglot import exp

from backfill_cli.derived.engines import Engine
from backfill_cli.derived.query import Item, Leaf, Select, missing_leaves
from backfill_cli.model.derived import Base

_SURE = (
    *(exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Var, exp.DataType),
    *(exp.Coalesce, exp.Case, exp.If, exp.Lower, exp.Upper, exp.Trim, exp.TimestampTrunc),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.And, exp.Or, exp.Not),
)
"""What has a value for all values that it is made of."""
_SURE_OF_ANY = (exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.DataType)
"""The same where a value is cast by itself, to compare or to pass it: 'x' = 1 fails."""


def guarded(select: Select, item: Item, engine: Engine) -> str | None:
    """SQL with the item's value for each row of the SELECT, which fails for no other row; None: there is none."""
    if engine.tries:
        return item.text if isinstance(item.tree, (exp.Column, exp.Literal)) else f"TRY({item.text})"
    if _sure(select, item.tree, engine):
        return item.text
    conditions = list(_conditions(select, item.tree, engine))
    if None in conditions:
        return None
    tests = " AND ".join(filter(None, conditions))
    return f"CASE WHEN {tests} THEN {item.text} END" if tests else item.text


def _sure(select: Select, tree: exp.Expr, engine: Engine) -> bool:
    for node in tree.walk():
        if isinstance(node, exp.Column):
            if not all(_sure(inner, item.tree, engine) for inner, item in _within(select, node)):
                return False
        elif isinstance(node, exp.Count | exp.Min | exp.Max):
            continue
        elif isinstance(node, exp.Cast):
            if not node.to.is_type("text"):
                return False
        elif not isinstance(node, _SURE_OF_ANY if engine.lenient else _SURE):
            return False
    return True


def _within(select: Select, column: exp.Column) -> Iterator[tuple[Select, Item]]:
    """What a column of a query in FROM is there, in each of its parts."""
    for leaf in select.leaves:
        if leaf.name == column.table and not isinstance(leaf.source, Base):
            at = [name for name, _ in leaf.columns].index(column.name)
            for inner in getattr(leaf.source, "branches", ()):
                yield inner, inner.items[at]


def _conditions(select: Select, tree: exp.Expr, engine: Engine) -> Iterator[str | None]:
    """SQL of what holds for the rows of the SELECT, as far as the expression needs it; None: it cannot be said."""
    of = {column.table for column in tree.find_all(exp.Column)}
    missing = missing_leaves(select)
    if select.where:
        yield f"({select.where})"
    for at, leaf in enumerate(select.leaves):
        on = _on(select, at)
        if at in missing:
            if leaf.name in of:
                yield f"({on} OR {key} IS NULL)" if (key := _never_null(leaf)) else None
        elif on and leaf.joined == "JOIN":
            yield on
    for column in tree.find_all(exp.Column):
        for inner, item in _within(select, column):
            left_out: object = inner.having is not None or inner.qualify
            if not (item.aggregates or item.windows):
                left_out = left_out or inner.where or len(inner.leaves) > 1
            if left_out and not _sure(inner, item.tree, engine):
                yield None


def _on(select: Select, at: int) -> str:
    """SQL of the condition by which a leaf is joined."""
    leaf = select.leaves[at] if at else select.leaves[min(1, len(select.leaves) - 1)]
    return f"({leaf.test})" if leaf.test else ""


def _never_null(leaf: Leaf) -> str:
    """SQL of a column of a table that is NULL only where an outer join has found no row; "" if none is."""
    if not isinstance(leaf.source, Base) or leaf.source.nullable or not leaf.source.key:
        return ""
    return f"{leaf.qualifier}.{leaf.columns[leaf.source.columns.index(leaf.source.key[0])][1]}"
