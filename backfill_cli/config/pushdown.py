"""What a transform needs of its upstream's rows, from its SQL: a `Wanted`.

Imported inside functions only, as `transforms.py`.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

import sqlglot
from sqlglot import exp

from backfill_cli.config.sections import Transform
from backfill_cli.model.pushdown import Condition, Op, Value, Wanted, day_of, moment_of

_OPS: dict[type[exp.Expr], tuple[Op, Op, Op]] = {
    exp.EQ: ("=", "=", "<>"),
    exp.NEQ: ("<>", "<>", "="),
    exp.LT: ("<", ">", ">="),
    exp.LTE: ("<=", ">=", ">"),
    exp.GT: (">", "<", "<="),
    exp.GTE: (">=", "<=", "<"),
}
"""Of a comparison: its operator, that with its sides exchanged, and the one that NOT makes of it."""

_NUMBER = re.compile(r"(\d+)(\.\d+)?")
_NOT_PLAIN = ('"', "\\", "`" * 2)
"""In SQL: what a setting gives another meaning (a name or a text; an escape), and a name with a backtick."""


def wanted(transform: Transform, key: Sequence[str]) -> Wanted:
    """The columns that a transform without faults names, and the key; of `where`, what an upstream can decide."""
    texts = [*(transform.select or ("*",)), *((transform.where,) if transform.where is not None else ())]
    where = () if transform.where is None else tuple(_conditions(transform.where))
    if any(sign in text for text in texts for sign in _NOT_PLAIN):
        return Wanted(where=where)
    select = [_parsed(text) for text in transform.select or ("*",)]
    stars = [one for one in select if isinstance(one, exp.Star)]
    condition = () if transform.where is None else (_condition_of(transform.where),)
    nested = any(one.find(exp.Star) for one in (*select, *condition) if one not in stars)
    dropped = frozenset.intersection(*map(excepted, stars)) if stars else frozenset()
    plain = [text for text, one in zip(texts, [*select, None], strict=False) if one not in stars]
    names = {token.text.lower() for text in plain for token in sqlglot.tokenize(text, dialect="spark")}
    names |= {name.lower() for name in key}
    return Wanted(frozenset(names), bool(stars) or nested, frozenset() if nested else dropped, where)


def excepted(star: exp.Expr) -> frozenset[str]:
    """In lower case, the columns for which a star does not stand; one that lacks a field does not count."""
    found = star.args.get("except_") or star.args.get("except") or ()
    return frozenset(
        one.name.lower() for one in found if isinstance(one, exp.Identifier) or _column(one) is not None
    )


def left_out(transform: Transform) -> frozenset[str]:
    """In lower case, the columns that a `* EXCEPT (…)` names: Spark needs them to exist."""
    return frozenset(
        name
        for text in transform.select or ()
        if isinstance(one := _parsed(text), exp.Star)
        for name in excepted(one)
    )


def _parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect="spark")


def _condition_of(where: str) -> exp.Expr:
    found: exp.Expr = sqlglot.parse_one(f"SELECT 1 WHERE {where}", dialect="spark").args["where"].this
    return found


def _conditions(where: str) -> Iterator[Condition]:
    """The parts of an AND that compare one column with constants."""
    if any(sign in where for sign in _NOT_PLAIN):
        return
    for part in _parts(_condition_of(where)):
        yield from _condition(part)


def _parts(expression: exp.Expr) -> Iterator[exp.Expr]:
    plain = expression.unnest()
    if isinstance(plain, exp.And):
        yield from _parts(plain.left)
        yield from _parts(plain.right)
    else:
        yield plain


def _condition(part: exp.Expr, negated: bool = False) -> Iterator[Condition]:
    """negated: NOT stands before it."""
    part = part.unnest()
    if isinstance(part, exp.Not):
        yield from _condition(part.this, not negated)
    elif (name := _column(part)) is not None:
        yield Condition(name, "=", (not negated,))
    elif isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
        if (name := _column(part.this)) is not None:
            yield Condition(name, "IS NOT NULL" if negated else "IS NULL")
    elif isinstance(part, exp.In):
        name, values = _column(part.this), [_value(one) for one in part.expressions]
        found = [one for one in values if one is not None]
        if name is not None and found and len(found) == len(values):
            yield Condition(name, "NOT IN" if negated else "IN", tuple(found))
    elif isinstance(part, exp.Between) and not negated and not part.args.get("symmetric"):
        name, low, high = _column(part.this), _value(part.args["low"]), _value(part.args["high"])
        if name is not None and low is not None and high is not None:
            yield from (Condition(name, ">=", (low,)), Condition(name, "<=", (high,)))
    elif type(part) in _OPS:
        yield from _compared(part, negated)


def _compared(part: exp.Expr, negated: bool) -> Iterator[Condition]:
    op, turned, opposite = _OPS[type(part)]
    name, value = _column(part.this), _value(part.expression)
    if name is None:
        name, value = _column(part.expression), _value(part.this)
        op, opposite = turned, next(theirs for ours, _, theirs in _OPS.values() if ours == turned)
    if name is not None and value is not None:
        yield Condition(name, opposite if negated else op, (value,))


def _column(part: exp.Expr) -> str | None:
    plain = part.unnest()
    return plain.name if isinstance(plain, exp.Column) and len(plain.parts) == 1 else None


def _value(part: exp.Expr) -> Value | None:
    """A constant as it is written; None for anything else, and for numbers that are not exact."""
    part = part.unnest()
    if isinstance(part, exp.Boolean):
        return bool(part.this)
    if isinstance(part, exp.Neg):
        number = _value(part.this)
        exact = isinstance(number, int | Decimal) and not isinstance(number, bool)
        return -number if exact and isinstance(number, int | Decimal) else None
    if isinstance(part, exp.Cast) and part.to.is_type("date", "timestamptz") and not part.to.expressions:
        return _written(part.this, part.to.is_type("date"))
    if not isinstance(part, exp.Literal):
        return None
    if part.is_string:
        return str(part.this)
    found = _NUMBER.fullmatch(str(part.this))
    return None if found is None else (Decimal(found[0]) if found[2] else int(found[0]))


def _written(text: exp.Expr, day: bool) -> Value | None:
    """What DATE '…' or TIMESTAMP '…' means."""
    if not isinstance(text, exp.Literal) or not text.is_string:
        return None
    return day_of(str(text.this)) if day else moment_of(str(text.this))
