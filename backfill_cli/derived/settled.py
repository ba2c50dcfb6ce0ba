"""What a SELECT computes in FROM is computed again and again: it must have one value each time.

A sum of floating-point numbers has not, in its last digits; nor has a group that shows one of its equal values
(1.0, 1.00).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.derived.contributions import WHOLE, bare, is_key
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.query import Item, Select
from backfill_cli.derived.reach import Reach
from backfill_cli.derived.reading import FLOATS, ORDERED

_AVERAGED = {
    "duckdb": (WHOLE - {"hugeint", "uhugeint"}, 18),
    "spark": (frozenset({"tinyint", "smallint"}), 38),  # larger ones are added as floating-point numbers
}
"""Types of which avg is the quotient of an exact sum, and the most digits of such decimals, by Engine.dialect."""


@dataclass(frozen=True, slots=True)
class Judged:
    """sql: a SELECT of these expressions, without rows. whys: for each, the aggregate whose argument it is; "" for
    one that a group or DISTINCT shows.
    """

    engine: Engine
    sql: str
    texts: tuple[str, ...]
    whys: tuple[str, ...]

    def unsettled(self, types: Sequence[str]) -> str:
        """What has no single value, for a message; "" if all has. types: as declared, of the columns of `sql`."""
        for text, why, kind in zip(self.texts, self.whys, types, strict=True):
            if why in ("", "min", "max"):
                if not is_key(kind):
                    what = f"{why}({text})" if why else text
                    return f"{what}, which is {kind}, of which equal values can differ"
            elif kind.upper() in FLOATS or not self._is_exact(why, kind):
                return f"{why}({text}), which is {kind}: its last digits depend on the order of rows"
        return ""

    def _is_exact(self, why: str, kind: str) -> bool:
        if why == "sum" or self.engine.averages:
            return True
        whole, most = _AVERAGED[self.engine.dialect]
        digits = kind.partition("(")[2].partition(",")[0]
        return why == "avg" and (bare(kind) in whole or (bare(kind) == "decimal" and int(digits or 0) <= most))


def judged(select: Select, engine: Engine) -> Iterator[Judged]:
    """What must have one value in a SELECT in FROM."""
    found = dict.fromkeys(_told(select))
    if found and select.leaves:
        listed = ", ".join(f"{text} AS {own.numbered(own.PART, at)}" for at, (text, _) in enumerate(found))
        sql = f"SELECT {listed} FROM {Reach(engine).from_(select, {})} LIMIT 0"
        yield Judged(engine, sql, tuple(text for text, _ in found), tuple(why for _, why in found))
    windows = [at for at, item in enumerate(select.items) if item.calls is None]
    if windows:
        names = ", ".join(own.numbered(own.PART, at) for at, _ in enumerate(select.items))
        wanted = ", ".join(own.numbered(own.PART, at) for at in windows)
        sql = f"SELECT {wanted} FROM ({Reach(engine).whole(select)}) AS {own.ROW}({names}) LIMIT 0"
        texts = tuple(select.items[at].text for at in windows)
        yield Judged(engine, sql, texts, tuple("" for _ in windows))


def _told(select: Select) -> Iterator[tuple[str, str]]:
    items = [*select.items, *([select.having] if select.having is not None else [])]
    for item in items:
        for call in item.calls or ():
            if call.name in ORDERED | {"min", "max"}:
                yield re.sub(r"^(distinct|all)\b", "", call.argument, flags=re.IGNORECASE), call.name
    if select.distinct:
        yield from ((item.text, "") for item in select.items if not (item.aggregates or item.windows))
    if select.groups is None:
        return
    for item in items:
        if item.tree in select.groups:
            yield item.text, ""
        else:
            yield from ((text, "") for text in _outside(item, select))


def _outside(item: Item, select: Select) -> Iterator[str]:
    """SQL of the columns that it has outside of aggregates."""
    kept = item.tree.transform(lambda one: exp.Null() if isinstance(one, exp.AggFunc | exp.Filter) else one)
    for column in kept.find_all(exp.Column):
        for leaf in select.leaves:
            if leaf.name == column.table and column.name in dict(leaf.columns):
                yield f"{leaf.qualifier}.{dict(leaf.columns)[column.name]}"
