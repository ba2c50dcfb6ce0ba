"""The text of a derived table with `refresh = "full"`: what it reads, and that it means one thing.

Its rows are computed anew where these change, so that their reach need not be known: FULL JOIN, subqueries in
expressions, set operations, sets of groups and recursion are taken, and what an order settles. Each column must be
one of something in FROM, and stay that one once a table gains a column. Which tables it reads, the engine says,
too (`SqlDerives.scanned`). Imported inside functions only, as `reading.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.query import Item, Whole
from backfill_cli.derived.reading import KEEP_ALL, ORDERED, TAKEN, Reader, function_of
from backfill_cli.model.derived import Base

_SELECT = TAKEN | {"with_", "limit", "offset"}
_SET = {"this", "expression", "distinct", "with_"}
_WITH = {"expressions", "recursive"}
_TABLE = {"this", "db", "catalog", "alias"}
_SUBQUERY = {"this", "alias"}
_CTE = {"this", "alias", "materialized"}
_JOIN = {"this", "on", "side", "kind", "method"}
_LIMIT = {"expression"}
_PARTS: Mapping[type[exp.Expr], set[str]] = {
    exp.Select: _SELECT,
    exp.SetOperation: _SET,
    exp.With: _WITH,
    exp.Table: _TABLE,
    exp.Subquery: _SUBQUERY,
    exp.CTE: _CTE,
    exp.Join: _JOIN,
    exp.Limit: _LIMIT,
    exp.Offset: _LIMIT,
}
"""The parts of each that are taken."""
_AROUND = (exp.Subquery, exp.CTE, exp.SetOperation, exp.Exists, exp.In, exp.Any, exp.All)
"""Where a query can stand whose rows are a set, or one value."""


MOST_STEPS = 1_000
"""Of a recursion: each is a join."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Something in FROM, `node`. columns: as they are compared. base: the table that it is, which can have further
    ones later. named: where the text has its name before a column.
    """

    node: exp.Expr
    columns: tuple[str, ...]
    base: Base | None = None
    named: list[exp.Expr] = field(default_factory=list)


class WholeReader(Reader):
    def outermost(self) -> Whole:
        tree = self._tree(0, len(self.tokens))
        self.found: dict[int, _Source] = {}
        self.read_bases: list[Base] = []
        self.inside: dict[int, _Source] = {}  # those that a query inside theirs names
        for node in tree.walk():
            self._require_parts(node)
        for with_ in tree.find_all(exp.With):
            for one in with_.expressions:
                self._require_query(one)
        for table in sorted(tree.find_all(exp.Table), key=_start):
            self._table(table)
        for one in tree.find_all(exp.CTE):
            self._require_end(one)
        self._judge(tree)
        froms = {id(select): self._sources(select) for select in tree.find_all(exp.Select)}
        for column in tree.find_all(exp.Column):
            self._column(column, froms)
        self._splice()
        for select in tree.find_all(exp.Select):
            self._require_settled_order(select, froms[id(select)])
        names = self._outputs(tree)
        for name in names:
            if not name:
                self.refuse("a column of its result has no name", "name it by AS")
            if names.count(name) > 1:
                self.refuse(f"two output columns are called {name!r}", "name one by AS")
        items = tuple(Item(name, "", exp.Null()) for name in names)
        sums = [one for one in tree.find_all(exp.AggFunc) if function_of(one) in ORDERED]
        keyed = {self.engine.name(one, True) for one in self.derived.key}
        shown = [] if any(map(tree.args.get, _DECIDING)) or not isinstance(tree, exp.Select) else tree.expressions
        free = [one for one, name in zip(shown, names, strict=False) if name not in keyed]
        hidden = tuple(self._said(one) for one in sums if not _is_shown(one, free))
        return Whole(items, tuple(self.read_bases), sums=hidden)

    def _limited(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Fetch):
            self.refuse(f"{self._said(node)}: it is not taken", "write LIMIT")
        if not isinstance(node.parent, exp.Select):
            self.refuse(
                f"{self._said(node)} of UNION, INTERSECT or EXCEPT: two rows can be equal in its order", KEEP_ALL
            )
        if not isinstance(node.expression, exp.Literal):
            self.refuse(f"{self._said(node)}: no number", "write a number of rows")

    def _sets_of_groups(self, node: exp.Expr) -> None:
        """They are taken."""

    def _id(self, node: exp.Expr) -> str:
        return self.engine.name(node.name, bool(node.args.get("quoted")))

    def _said(self, node: exp.Expr) -> str:
        said = node.sql(dialect=self.engine.dialect, comments=False)
        return said if len(said) <= 60 else said[:57] + "…"

    def _require_parts(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Join) and node.args.get("using"):
            self.refuse(
                f"{self._said(node)}: once another table gains a column of that name, it can be either",
                "write ON, with the table's name before each column",
            )
        for kind, taken in _PARTS.items():
            if isinstance(node, kind):
                for name, value in node.args.items():
                    if value and name not in taken:
                        self.refuse(f"{name.strip('_').upper()} in {self._said(node)}", "leave it out")
        if isinstance(node, exp.Select) and (node.args.get("kind") or node.args.get("hint")):
            self.refuse(self._said(node), "leave AS STRUCT, or the hint, out")
        if isinstance(node, exp.Star) and not (
            isinstance(node.parent, exp.Count)
            or (isinstance(node.parent, exp.Select) and isinstance(node.parent.parent, exp.Exists))
        ):
            self.refuse("a star: the result would change with the columns of a table", "name each column")
        if isinstance(node, exp.Query) and self._is_list(node):
            self.refuse(
                f"{self._said(node.parent or node)}: a list of rows, whose order is not settled",
                "write IN or EXISTS, or join what it reads",
            )
        if isinstance(node, exp.Join):
            joined = (node.args.get("kind") or "").upper()
            if node.args.get("method") or joined not in ("", "INNER", "CROSS", "OUTER"):
                written = {"SEMI": "write WHERE EXISTS (SELECT …)", "ANTI": "write WHERE NOT EXISTS (SELECT …)"}
                self.refuse(self._said(node), written.get(joined, "write JOIN … ON with all its conditions"))

    def _is_list(self, query: exp.Query) -> bool:
        """Whether its rows are made one value: ARRAY(SELECT …), or anything else that takes a query so."""
        around = query.parent
        if isinstance(query, exp.Subquery):
            return isinstance(around, exp.Array) and "value_constructor" not in around.args
        return around is not None and not isinstance(around, _AROUND)

    def _require_query(self, one: exp.Expr) -> None:
        name = one.args["alias"].this
        if not isinstance(one.this, exp.Query):
            self.refuse(f"WITH {self._said(one)}: no SELECT", "write one query in derived.sql")
        if self._matching([self._id(name)]):
            self.refuse(f"WITH {name.name}: a table of the job is called so, too", "give it another name")

    # -- tables

    def _table(self, table: exp.Table) -> None:
        if not isinstance(table.parent, (exp.From, exp.Join)):
            self.refuse(f"{self._said(table)}: a table outside of FROM", "read it FROM there: (SELECT … FROM …)")
        if not all(isinstance(part, exp.Identifier) for part in table.parts):
            self.refuse(f"FROM {self._said(table)}: a table function", "read a table of the job")
        alias = table.args.get("alias")
        if (one := cte_of(table, self.engine)) is not None:
            listed = self._listed(alias) or self._listed(one.args["alias"])
            names = self._outputs(one.this)
            self.found[id(table)] = _Source(table, (*listed, *names[len(listed) :]))
            return
        if self._listed(alias):
            self.refuse(
                f"{self._said(table)}: once the table gains a column called so, it can be either",
                "name its columns by AS in a query: FROM (SELECT id AS a FROM orders) AS o",
            )
        base = self._base([self._id(part) for part in table.parts], self._said(table))
        if base not in self.read_bases:
            self.read_bases.append(base)
        columns = tuple(self.engine.name(one, True) for one in base.columns)
        self.found[id(table)] = _Source(table, columns, base)

    def _splice(self) -> None:
        """Tables have their own names; and what a query inside names has one of ours: a table there could gain a
        column that is called so, with fields.
        """
        sources = {**self.found, **self.inside}
        for number, (at, source) in enumerate(sources.items()):
            alias, parts = source.node.args.get("alias"), getattr(source.node, "parts", [])
            ours = own.numbered(own.SUB, number) if at in self.inside else ""
            if ours:
                for name in source.named + ([alias.this] if alias else []):
                    self.splices.append((*self._place(name, name), ours))
            called = ours or (self.engine.quoted(self._id(parts[-1])) if source.base else "")
            beside = f" AS {called}" if called and not alias else ""
            if source.base or beside:
                begin, end = self._place(parts[0], parts[-1])
                self.splices.append(
                    (begin, end, (source.base.sql if source.base else self.text[begin:end]) + beside)
                )

    def _place(self, first: exp.Expr, last: exp.Expr) -> tuple[int, int]:
        return first.meta["start"], last.meta["end"] + 1

    def _require_end(self, one: exp.CTE) -> None:
        """Raises for recursion that rows could keep going: a cycle of rows, or a number that is counted on."""
        itself = [table for table in one.find_all(exp.Table) if cte_of(table, self.engine) is one]
        if not itself:
            return
        union, step = one.this, one.this.args.get("expression")
        if isinstance(union, exp.Union) and isinstance(step, exp.Select):
            sources = [node.this for node in (step.args["from_"], *(step.args.get("joins") or ()))]
            alone = all(any(table is source for source in sources) for table in itself)
            if alone and all(isinstance(source, exp.Table) for source in sources):
                shown = [node.unalias() for node in step.expressions]
                # no other values than those of the tables, and numbers up to a bound: UNION has each row once
                names = self._listed(one.args["alias"]) or self._outputs(union.this)
                called = {self._id(table.args.get("alias") or table.this) for table in itself}
                ends = (
                    isinstance(node, (exp.Column, exp.Literal))
                    or (at < len(names) and self._counts(union.this, step, at, (called, names[at])))
                    for at, node in enumerate(shown)
                )
                if union.args.get("distinct") and all(ends):
                    return
        self.refuse(
            f"WITH RECURSIVE {self._id(one.args['alias'].this)}: rows could keep it from coming to an end",
            "write UNION, not UNION ALL, with columns alone in the SELECT that reads itself; or count its steps, "
            "too, from 0 AS depth, by r.depth + 1 WHERE r.depth < 100",
        )

    def _counts(self, first: exp.Expr, step: exp.Select, at: int, column: tuple[set[str], str]) -> bool:
        """Whether this column begins with a whole number, and each step adds one to it, up to a bound.

        column: what it can be called: the names of its query in FROM, and its own.
        """
        if not isinstance(first, exp.Select) or max(len(first.expressions), at + 1) != len(step.expressions):
            return False
        begin, next_, where = (
            first.expressions[at].unalias(),
            step.expressions[at].unalias(),
            step.args.get("where"),
        )
        if not (_is_whole(begin) and isinstance(next_, exp.Add) and _is_whole(next_.right) and where is not None):
            return False
        tests = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
        bounds = [
            one
            for one in tests
            if isinstance(one, (exp.LT, exp.LTE)) and _is_whole(one.right) and int(one.right.name) <= MOST_STEPS
        ]
        names, (tables, name) = list(map(self._id, getattr(next_.left, "parts", []))), column
        is_it = names[1:] == [name] and names[0] in tables and int(next_.right.name) > 0
        return is_it and any(one.left == next_.left for one in bounds)

    def _listed(self, alias: exp.Expr | None) -> tuple[str, ...]:
        return tuple(map(self._id, (alias.args.get("columns") or ()))) if alias is not None else ()

    def _outputs(self, query: exp.Expr) -> tuple[str, ...]:
        """Names of its result's columns; "" for one without."""
        while isinstance(query, (exp.Subquery, exp.SetOperation)):
            query = query.this
        if not isinstance(query, exp.Select):
            self.refuse(f"{self._said(query)}: not a SELECT", "write it as a query")
        names = []
        for one in query.expressions:
            named = one.args["alias"] if isinstance(one, exp.Alias) else one.this
            is_named = isinstance(one, (exp.Alias, exp.Column)) and isinstance(named, exp.Identifier)
            names.append(self._id(named) if is_named else "")
        return tuple(names)

    def _sources(self, select: exp.Select) -> Mapping[str, _Source]:
        """What its FROM has, by name."""
        from_ = select.args.get("from_")
        parts = [from_.this] if from_ is not None else []
        parts += [join.this for join in select.args.get("joins") or ()]
        found: dict[str, _Source] = {}
        for one in parts:
            alias = one.args.get("alias")
            if isinstance(one, exp.Table):
                name = self._id(alias.this if alias and alias.this else one.parts[-1])
                source = self.found[id(one)]
            elif isinstance(one, exp.Subquery) and isinstance(one.this, exp.Query) and alias and alias.this:
                listed, names = self._listed(alias), self._outputs(one.this)
                name, source = self._id(alias.this), _Source(one, (*listed, *names[len(listed) :]))
            elif isinstance(one, exp.Values) and alias and alias.this and self._listed(alias):
                name, source = self._id(alias.this), _Source(one, self._listed(alias))
            else:
                self.refuse(
                    f"FROM {self._said(one)}: neither a table nor a query with a name",
                    "give it one: (SELECT …) AS one, or (VALUES …) AS v(a, b)",
                )
            if name in found:
                self.refuse(f"two things in FROM are called {name!r}", "give one another name: FROM orders AS o")
            found[name] = source
        return found

    # -- columns

    def _column(self, column: exp.Column, froms: Mapping[int, Mapping[str, _Source]]) -> None:
        """Raises for one that is none of something in FROM, or that can be another's later."""
        first, *rest = map(self._id, column.parts)
        said, grows, innermost = self._said(column), False, next(_around(column), None)
        if innermost is not None and not rest and self._sorts_by_output(column, innermost):
            return
        for select in _around(column):
            sources = froms[id(select)]
            if rest and first in sources:
                source = sources[first]
                if rest[0] not in source.columns:
                    break
                source.named.append(column.parts[0])
                if select is not innermost:
                    self.inside[id(source.node)] = source
                return
            has = [one for one in sources.values() if first in one.columns]
            others = [one for one in sources.values() if one.base and not (len(has) == 1 and one is has[0])]
            if has and not rest:
                if grows or len(has) > 1 or others:
                    self.refuse(
                        f"{said}: once another table gains a column of that name, it can be either",
                        f"say whose it is, as in orders.{said}",
                    )
                return
            if first in sources:
                self.refuse(f"{said}: a row as a value, which changes with the table's columns", "name a column")
            grows = grows or bool(others)
            if not rest and not grows and first in self._outputs(select) and _is_output(column, select):
                return
        self.refuse(
            f"{said}: no table in FROM has that column",
            "name a column of a table in FROM; for another output column, repeat its expression",
        )

    def _sorts_by_output(self, column: exp.Column, select: exp.Select) -> bool:
        """Whether it is what AS calls so, whatever FROM has: the SELECT's own ORDER BY looks there first.

        So it does for a name alone, not within an expression.
        """
        if not isinstance(column.parent, exp.Ordered) or column.parent.parent is not select.args.get("order"):
            return False
        name = self._id(column.parts[0])
        named = [one for one, said in zip(select.expressions, self._outputs(select), strict=True) if said == name]
        return len(named) == 1 and isinstance(named[0], exp.Alias)

    # -- orders

    def _require_settled_order(self, select: exp.Select, sources: Mapping[str, _Source]) -> None:
        """Raises where the first rows of an order are taken in which two can be equal."""
        order = select.args.get("order")
        by = [one.this for one in order.expressions] if order is not None else []
        distinct = select.args.get("distinct")
        per = distinct.args.get("on") if distinct is not None else None
        if per is not None:
            listed = per.expressions if isinstance(per, exp.Tuple) else [per.unnest()]
            self._require_total("DISTINCT ON", select, sources, [*by, *listed])
        for node in (select.args.get("limit"), select.args.get("offset")):
            if node is not None:
                self._limited(node)
                if distinct is not None and per is None:
                    self.refuse(f"{self._said(node)} of DISTINCT: it is not taken", KEEP_ALL)
                self._require_total(self._said(node), select, sources, by)
        for window in select.find_all(exp.Window):
            if function_of(window.this) == "row_number" and window.find_ancestor(exp.Select) is select:
                ordered = window.args.get("order")
                last = [one.this for one in ordered.expressions] if ordered is not None else []
                parts = window.args.get("partition_by") or []
                self._require_total("row_number()", select, sources, [*last, *parts])

    def _require_total(
        self, what: str, select: exp.Select, sources: Mapping[str, _Source], by: Sequence[exp.Expr]
    ) -> None:
        """Raises unless these tell the rows of the SELECT apart: by columns with the name of their table."""
        known = {tuple(map(self._id, one.parts)) for one in by if isinstance(one, exp.Column)}
        group = select.args.get("group")
        if group is not None:
            groups = {tuple(map(self._id, one.parts)) for one in group.expressions if isinstance(one, exp.Column)}
            plain = len(groups) == len(group.expressions) and not any(
                value for name, value in group.args.items() if name != "expressions"
            )
            if plain and groups <= known and all(len(one) == 2 for one in groups):
                return
            self.refuse(
                f"{what}: two groups can be equal in its order",
                "have each expression of GROUP BY in its ORDER BY, as a column: orders.status",
            )
        outer = any(join.args.get("side") for join in select.args.get("joins") or ())
        for name, source in sources.items():
            if (base := source.base) is None or not base.unique or (base.nullable and outer):
                self.refuse(
                    f"{what}: two rows of {name} can be equal in its order, as no key of it is known",
                    "make what FROM computes a [[derived]] of its own, and read that one here",
                )
            lacking = [one for one in base.key if (name, self.engine.name(one, True)) not in known]
            if lacking or not base.key:
                self.refuse(
                    f"{what}: two rows can be equal in its order, and either would be the first",
                    "add to its ORDER BY: " + ", ".join(f"{name}.{one}" for one in lacking),
                )


def cte_of(table: exp.Table, engine: Engine) -> exp.CTE | None:
    """The query of WITH that a name in FROM is: one before it, itself if RECURSIVE, or any before its SELECT."""

    def called(part: exp.Expr) -> str:
        return engine.name(part.name, bool(part.args.get("quoted")))

    inner: exp.Expr | None = table
    within = set[int]()
    while inner is not None and len(table.parts) == 1:
        with_ = inner.args.get("with_") or exp.With()
        queries: list[exp.CTE] = with_.expressions
        for one in queries:
            inside = id(one) in within
            if inside and not with_.args.get("recursive"):
                break
            if called(one.args["alias"].this) == called(table.this):
                return one
            if inside:
                break
        within.add(id(inner))
        inner = inner.parent
    return None


def _start(table: exp.Table) -> int:
    """Where it stands in the text."""
    return int(table.parts[0].meta.get("start", 0))


def _is_output(column: exp.Column, select: exp.Select) -> bool:
    """Whether the name of an output, which nothing in FROM has, is that output: elsewhere, a column of the query
    around comes first, which a table there can gain.
    """
    part = column.parent.parent if isinstance(column.parent, exp.Ordered) else column.parent
    sorts = isinstance(part, (exp.Order, exp.Group)) and part.parent is select
    return sorts or list(_around(column)) == [select]


def _around(column: exp.Column) -> Iterator[exp.Select]:
    """The SELECTs that it stands in, the innermost first."""
    inner: exp.Expr | None = column.parent
    while inner is not None:
        if isinstance(inner, exp.Select):
            yield inner
        inner = inner.parent


def _is_whole(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


_DECIDING = ("having", "qualify", "distinct", "limit", "offset")
"""Parts of a SELECT by which a value of it decides about rows."""
_ARITHMETIC = (exp.Alias, exp.Paren, exp.Cast, exp.Coalesce, exp.Round, exp.Filter)
_OPERATORS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)


def _is_shown(call: exp.Expr, shown: Sequence[exp.Expr]) -> bool:
    """Whether its value is in one of these columns of the result, and decides about nothing else."""
    inner, outer = call, call.parent
    while isinstance(outer, _ARITHMETIC + _OPERATORS) or (isinstance(outer, exp.Window) and outer.this is inner):
        inner, outer = outer, outer.parent
    return any(inner is one for one in shown)
