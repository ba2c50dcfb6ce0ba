"""Random tables, SELECTs and epochs, from a seed: what derived tables take, hostile where it can be.

Nothing here is the product's: the rows are lists of Python, and the expected ones are those of the user's text,
run by a database of its own in which the tables have the names that the text uses.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
ODD = ["id", "a", "b", "c", "K x", "select", 'q"q', "group", "é", "n", "key", "count", "row", "É t"]
NAMES = ["orders", "customers", "Items x", "order", "o", "É", "n"]
PLAIN = {"id", "a", "b", "c", "n", "o", "orders", "customers", "x"}
"""Names that need no quotes."""
HUGE = "DECIMAL(30,3)"
VALUES: dict[str, list[Any]] = {
    "INTEGER": [0, 1, 2, 3],
    "TEXT": ["", "x", "y", "X", "NULL", "1", "01", "é", "É"],
    "DOUBLE": ["0.0", "-0.0", "1.5", "2.0", "NaN", "inf"],
    "NUMERIC": ["1.0", "1.00", "2", "NaN"],
    "DECIMAL(9,2)": ["0.00", "1.50", "-1.50", "2.00"],
    "DATE": ["2024-01-01", "2024-01-02", "0001-01-01"],
    "BOOLEAN": ["true", "false"],
    HUGE: ["99999999999999999999999999.999", "-99999999999999999999999999.999", "0.001"],
}
SQL = {"INTEGER": "1", "TEXT": "'x'", "DATE": "DATE '2024-01-02'", "BOOLEAN": "TRUE"}
"""A value of each kind; of others, a number."""
NUMBERS = {"INTEGER", "DOUBLE", "NUMERIC", "DECIMAL(9,2)", "DECIMAL(18,2)", HUGE}


@dataclass
class Table:
    """columns: (name, type); the first `keys` of them are the key. rows: by key."""

    name: str
    target: str
    columns: list[tuple[str, str]]
    keys: int
    rows: dict[Row, Row] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns[: self.keys])


@dataclass
class View:
    """key: of the derived table; empty for one row."""

    name: str
    sql: str
    key: tuple[str, ...]
    columns: list[tuple[str, str]]
    refresh: str = ""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class World:
    """What one seed makes. dialect: "duckdb" or "postgres"."""

    def __init__(self, seed: int, dialect: str = "duckdb") -> None:
        self.random = random.Random(seed)
        self.dialect = dialect
        self.equal = "NUMERIC" if dialect == "postgres" else "DOUBLE"  # values that are equal and not the same
        pick = self.random
        names = pick.sample(NAMES, pick.randint(1, 3))
        self.tables = [self._table(name, at) for at, name in enumerate(names)]
        for table in self.tables:
            for _ in range(pick.choice([0, 3, 8])):
                self._put(table)
        self.views: list[View] = []
        """Those that later ones can read."""
        self.queries: list[tuple[str, list[tuple[str, str]]]] = []
        """Those of WITH in the SELECT that is made, with their columns."""

    # -- rows

    def _table(self, name: str, at: int) -> Table:
        pick = self.random
        keys = pick.choice([1, 1, 2])
        names = pick.sample(ODD, keys + pick.randint(1, 3))
        columns = [(one, pick.choice(["INTEGER", "INTEGER", "TEXT", "DATE"])) for one in names[:keys]]
        kinds = ["INTEGER", "INTEGER", "TEXT", "TEXT", "DECIMAL(9,2)", self.equal, "DATE", "BOOLEAN", HUGE]
        columns += [(one, pick.choice(kinds)) for one in names[keys:]]
        return Table(name, f'sink t{at} "x"', columns, keys)

    def _value(self, kind: str, null: bool) -> Any:
        pick = self.random
        if null and pick.random() < 0.3:
            return None
        return pick.choice(VALUES[kind])

    def _put(self, table: Table) -> Row:
        row = tuple(self._value(kind, at >= table.keys) for at, (_, kind) in enumerate(table.columns))
        table.rows[row[: table.keys]] = row
        return row[: table.keys]

    def epoch(self) -> dict[str, set[Row] | None]:
        """The tables change: by name, the keys of changed rows, some of them of rows as they were; None: emptied
        first.
        """
        pick, changes = self.random, {}
        for table in self.tables:
            if pick.random() < 0.35:
                continue
            changed: set[Row] | None = set()
            if pick.random() < 0.06:
                table.rows.clear()
                changed = None
            for _ in range(pick.choice([1, 1, 2, 4])):
                act = pick.random()
                if act < 0.35 and table.rows:
                    key = pick.choice(sorted(table.rows))
                    del table.rows[key]
                elif act < 0.4 and table.rows:
                    key = pick.choice(sorted(table.rows))
                elif act < 0.45:
                    key = tuple(self._value(kind, False) for _, kind in table.columns[: table.keys])
                    table.rows.pop(key, None)
                else:
                    key = self._put(table)
                if changed is not None:
                    changed.add(key)
            changes[table.name] = changed
        return changes

    # -- SELECTs

    def view(self, name: str) -> View:
        """The next one, which later ones can read once it is in `views`."""
        pick = self.random
        self.queries.clear()
        shape = pick.choice(
            [
                "sums",
                "sums",
                "group",
                "group",
                "group",
                "plain",
                "plain",
                "one",
                "distinct",
                "first",
                "union",
                "cast",
                "lacking",
                "beside",
            ]
        )
        if shape == "lacking":
            return self._lacking(name)
        if shape == "beside":
            return self._beside(name)
        if shape == "union":
            return self._union(name)
        if shape == "cast":
            return self._cast(name)
        with_, from_, columns = self._joined() if shape == "sums" else self._from()
        where = f" WHERE {self._condition(columns)}" if pick.random() < 0.5 else ""
        if pick.random() < 0.1:
            where += " -- a comment"
        if shape == "one":
            return self._one(name, with_, from_, where, columns)
        if shape == "sums" and pick.random() < 0.2:
            listed = ", ".join(f"{self._sum(columns)} AS agg{at}" for at in range(3))
            return View(name, f"{with_}SELECT {listed} FROM {from_}{where}", (), [])
        if shape == "sums":
            keys = self._some(columns)
            items = [f"{sql} AS {quoted(as_)}" for sql, as_, _ in keys]
            items += [f"{self._sum(columns)} AS agg{at}" for at in range(2)]
            pick.shuffle(items)
            groups = ", ".join(sql for sql, _, _ in keys)
            key, kinds = tuple(as_ for _, as_, _ in keys), [one[1:] for one in keys]
            having = f" HAVING {self._sum(columns)} {pick.choice(['> 1', '<> 2', 'IS NULL'])}"
            groups += having if pick.random() < 0.2 else ""
            return View(name, f"SELECT {', '.join(items)} FROM {from_}{where}\nGROUP BY {groups}", key, kinds)
        if shape == "group":
            return self._grouped(name, with_, from_, where, columns)
        if shape == "first":
            return self._first(name, with_, from_, where, columns)
        items = self._some(columns)
        if shape == "plain" and pick.random() < 0.8:  # so that its key is one
            items = [(sql, f"Column {at}", kind) for at, (sql, kind) in enumerate(columns)]
        listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_, _ in items)
        if shape == "distinct":
            keys = tuple(as_ for _, as_, _ in items)
            return View(name, f"{with_}SELECT DISTINCT {listed} FROM {from_}{where}", keys, [i[1:] for i in items])
        keys = tuple(as_ for _, as_, _ in items)
        if pick.random() < 0.1:
            keys = keys[: pick.randint(1, len(keys))]
        return View(name, f"{with_}SELECT {listed} FROM {from_}{where}", keys, [one[1:] for one in items])

    def refreshed(self, name: str) -> View:
        """One of which no changed rows can be told, over one or two of the tables and views."""
        pick = self.random
        (left, ours), (right, theirs) = (self._held(as_) for as_ in ("l", "r"))
        one, kind = pick.choice(ours)
        same = [other for other, its in theirs if its == kind]
        other = pick.choice(same) if same else None
        on = f"{one} = {other}" if other else f"{theirs[0][0]} IS NULL"
        listed = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(ours))
        kinds = [(f"c{at}", kind) for at, (_, kind) in enumerate(ours)]
        keys = tuple(column for column, _ in kinds)
        exists = f"{pick.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {right} WHERE {on})"
        tests = [exists]
        if other:
            within = f"SELECT {other} FROM {right} WHERE {self._condition(theirs)}"
            tests += [
                f"{one} IN ({within})",
                f"{one} NOT IN ({within})",
                f"{one} = (SELECT max({other}) FROM {right})",
            ]
            sets = pick.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
            texts = [
                f"SELECT {one} AS v FROM {left} {sets} SELECT {other} FROM {right}",
                f"SELECT coalesce({one}, {other}) AS v FROM {left} FULL JOIN {right} ON {on} GROUP BY 1",
            ]
            if pick.random() < 0.4:
                return View(name, pick.choice(texts), ("v",), [("v", kind)], "full")
        if pick.random() < 0.2:
            return self._of_an_order(name)
        if pick.random() < 0.1:
            sql = f"SELECT {one} AS v, grouping({one}) AS g, count(*) AS n FROM {left} GROUP BY ROLLUP ({one})"
            return View(name, sql, ("v", "g"), [("v", kind)], "full")
        if pick.random() < 0.2:
            counted = f"(SELECT count(*) FROM {right} WHERE {on})"
            return View(name, f"SELECT sum({counted}) AS n FROM {left}", (), [], "full")
        if pick.random() < 0.2:
            integers = [sql for sql, its in ours if its == "INTEGER"]
            if integers:
                one, other = pick.choice(integers), pick.choice(integers)
                first = f"SELECT {one} FROM {left} WHERE {self._condition(ours)}"
                step = f"SELECT {other} FROM {left} JOIN w ON w.n = {one}"
                sql = f"WITH RECURSIVE w(n) AS ({first} UNION {step}) SELECT w.n FROM w"
                return View(name, sql, ("n",), [("n", "INTEGER")], "full")
        return View(name, f"SELECT {listed} FROM {left} WHERE {pick.choice(tests)}", keys, kinds, "full")

    def _of_an_order(self, name: str) -> View:
        """The first rows of a table, in an order that ends in its key; or all, numbered."""
        pick = self.random
        of = pick.choice(self.tables)
        columns = [(f"l.{quoted(column)}", kind) for column, kind in of.columns]
        order = [pick.choice(columns)[0] + pick.choice(["", " DESC", " NULLS FIRST"])]
        order += [f"l.{quoted(column)}" for column in of.key]
        listed = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(columns))
        kinds = [(f"c{at}", kind) for at, (_, kind) in enumerate(columns)]
        by = f"ORDER BY {', '.join(order)}"
        where = f"FROM {quoted(of.name)} AS l WHERE {self._condition(columns)}"
        if pick.random() < 0.3:
            sql = f"SELECT row_number() OVER ({by}) AS number, {listed} {where}"
            return View(name, sql, ("number",), [("number", "INTEGER"), *kinds], "full")
        if pick.random() < 0.3:
            first = columns[-1][0]
            sql = f"SELECT DISTINCT ON ({first}) {listed} {where} ORDER BY {first}, {', '.join(order)}"
            return View(name, sql, (kinds[-1][0],), kinds, "full")
        sql = f"SELECT {listed} {where} {by} LIMIT {pick.randint(0, 4)} OFFSET {pick.randint(0, 2)}"
        return View(name, sql, tuple(f"c{at}" for at, _ in enumerate(of.key)), kinds, "full")

    def _held(self, as_: str) -> tuple[str, list[tuple[str, str]]]:
        """A table or view in FROM, and its columns as SQL with their types."""
        of = self.random.choice([*self.tables, *self.views])
        return f"{quoted(of.name)} AS {as_}", [(f"{as_}.{quoted(column)}", kind) for column, kind in of.columns]

    def _some(self, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
        """Expressions with a name and a type."""
        pick = self.random
        as_names = pick.sample(["k", "Key 2", "from", "id", "a", 'u"', "zz", "key", "n", "É"], 5)
        found = [(*self._expression(columns), as_) for as_ in as_names[: pick.randint(1, 4)]]
        return [(sql, as_, kind) for sql, kind, as_ in found]

    def _expression(self, columns: Sequence[tuple[str, str]]) -> tuple[str, str]:
        pick = self.random
        sql, kind = pick.choice(columns)
        act = pick.random()
        if act < 0.55:
            return sql, kind
        if act < 0.6:
            return f"CASE WHEN {self._condition(columns)} THEN {sql} END", kind
        if kind == "INTEGER":
            other = pick.choice([one for one, its in columns if its == "INTEGER"])
            return pick.choice(
                [
                    (f"coalesce({sql}, -1)", kind),
                    (f"{sql} + coalesce({other}, 0)", kind),
                    (f"{sql} % 2", kind),
                    (f"nullif({sql}, 1)", kind),
                    (f"CAST({sql} AS TEXT)", "TEXT"),
                    (f"({sql} > 1)", "BOOLEAN"),
                ]
            )
        if kind == "TEXT":
            return pick.choice(
                [
                    (f"coalesce({sql}, '?')", kind),
                    (f"upper({sql})", kind),
                    (f"CASE WHEN {sql} = 'x' THEN 'X' END", kind),
                    (f"{sql} || 'z'", kind),
                    (f"length({sql})", "INTEGER"),
                ]
            )
        if kind == "DATE":
            return pick.choice(
                [
                    (f"coalesce({sql}, DATE '2024-01-01')", kind),
                    (f"CAST({sql} AS TEXT)", "TEXT"),
                    (f"CAST(extract(day FROM {sql}) AS INTEGER)", "INTEGER"),
                ]
            )
        if kind == "BOOLEAN":
            return pick.choice(
                [(f"NOT {sql}", kind), (f"coalesce({sql}, FALSE)", kind), (f"({sql} IS TRUE)", kind)]
            )
        return pick.choice([f"coalesce({sql}, 0)", f"-{sql}", f"nullif({sql}, 2)"]), kind

    def _condition(self, columns: Sequence[tuple[str, str]], depth: int = 0) -> str:
        pick = self.random
        if depth < 2 and pick.random() < 0.3:
            joined = pick.choice([" AND ", " OR "]).join(self._condition(columns, depth + 1) for _ in "ab")
            return f"({joined})"
        sql, kind = pick.choice(columns)
        same = [one for one, its in columns if its == kind]
        value = SQL.get(kind, "1.50")
        return pick.choice(
            [
                f"{sql} IS NULL",
                f"{sql} IS NOT NULL",
                f"{sql} = {value}",
                f"{sql} <> {value}",
                f"{sql} IS DISTINCT FROM {pick.choice(same)}",
                f"{sql} <= {pick.choice(same)}",
                f"{sql} IN ({value}, {value})",
            ]
        )

    def _from(self, depth: int = 0) -> tuple[str, str, list[tuple[str, str]]]:
        """WITH, FROM, and its columns as SQL with their types."""
        pick = self.random
        with_: list[str] = []
        text, columns = "", []
        first: list[tuple[str, str]] = []
        names = pick.sample(["o", "c", "orders", "t 1", "x", "é", "É"], 4)
        for at, name in enumerate(
            names[: pick.choice([1, 1, 1, 2, 2, 2, 3]) if not depth else pick.choice([1, 1, 2])]
        ):
            source, inner = self._source(depth, with_, name)
            of = self._spelt(name)
            mine = [(f"{of}.{self._spelt(column)}", kind) for column, kind in inner]
            both = [(one, kind) for one, kind in inner if (one, kind) in first]
            if not at:
                text, columns, first = source, mine, inner
                continue
            joined = pick.choice(
                ["JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT OUTER JOIN", ",", "RIGHT JOIN", "CROSS JOIN"]
            )
            if joined == "RIGHT JOIN" and at > 1:
                joined = "LEFT JOIN"
            text += f" {joined} {source}" if joined != "," else f", {source}"
            if joined not in (",", "CROSS JOIN"):
                if at == 1 and both and pick.random() < 0.4:
                    merged, kind = pick.choice(both)
                    text += f" USING ({quoted(merged)})"
                    if pick.random() < 0.5:
                        mine = [*mine, (quoted(merged), kind)]
                else:
                    text += f" ON {self._on(columns, mine)}"
            columns = [*columns, *mine]
        return (f"WITH {', '.join(with_)} " if with_ else ""), text, columns

    def _spelt(self, name: str) -> str:
        """A name in one of its spellings."""
        pick = self.random
        if name in PLAIN and pick.random() < 0.4:
            return pick.choice([name, name.upper()])
        return quoted(name.upper() if name in PLAIN and self.dialect == "duckdb" and pick.random() < 0.2 else name)

    def _on(self, left: Sequence[tuple[str, str]], right: Sequence[tuple[str, str]]) -> str:
        pick = self.random
        pairs = [(one, two) for one, kind in left for two, other in right if kind == other]
        if not pairs:
            return self._condition([*left, *right])
        one, two = pick.choice(pairs)
        on = pick.choice(
            [f"{one} = {two}", f"{two} = {one}", f"{one} = {two}", f"{one} IS NOT DISTINCT FROM {two}"]
        )
        if pick.random() < 0.25:
            on += f" AND {self._condition([*left, *right])}"
        return on

    def _source(self, depth: int, with_: list[str], name: str) -> tuple[str, list[tuple[str, str]]]:
        pick = self.random
        if depth < 2 and pick.random() < 0.12:
            body, held = self._computed(depth)
            if not depth and pick.random() < 0.4:
                cte = f"w{len(with_)}"
                with_.append(f"{cte} AS ({body})")
                self.queries.append((cte, held))
                return f"{cte} AS {quoted(name)}", held
            return f"({body}) AS {quoted(name)}", held
        if not depth and self.queries and pick.random() < 0.3:  # once more
            cte, held = pick.choice(self.queries)
            return f"{cte} AS {quoted(name)}", held
        if depth < 2 and pick.random() < 0.3:
            inner_with, from_, columns = self._from(depth + 1)
            items = self._some(columns)
            listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_, _ in items)
            where = f" WHERE {self._condition(columns)}" if pick.random() < 0.5 else ""
            body = f"{inner_with}SELECT {listed} FROM {from_}{where}"
            if pick.random() < 0.3 and not inner_with:
                other = ", ".join(self._widened(sql, kind) for sql, _, kind in items)
                body += f" UNION ALL SELECT {pick.choice([listed, other])} FROM {from_}"
            if not depth and pick.random() < 0.4:
                cte = f"w{len(with_)}"
                with_.append(f"{cte} AS ({body})")
                return f"{cte} AS {quoted(name)}", [one[1:] for one in items]
            return f"({body}) AS {quoted(name)}", [one[1:] for one in items]
        readable: list[Table | View] = [*self.tables, *(one for one in self.views if one.columns), *self.tables]
        base = pick.choice(readable)
        spelt = self._spelt(base.name) if isinstance(base, Table) else quoted(base.name)
        if isinstance(base, Table) and pick.random() < 0.3:
            spelt = f"public.{spelt}"
        if pick.random() < 0.1:
            renamed = [(f"r{at}", kind) for at, (_, kind) in enumerate(base.columns)]
            listed = ", ".join(
                f"{quoted(column)} AS {new}" for (column, _), (new, _) in zip(base.columns, renamed, strict=True)
            )
            return f"(SELECT {listed} FROM {spelt}) AS {quoted(name)}", renamed
        return f"{spelt} {pick.choice(['AS ', ''])}{quoted(name)}", base.columns

    def _computed(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """A query whose rows are not rows of its FROM, with the columns that can be read of it."""
        pick = self.random
        shape = pick.choice(["group", "group", "group", "one", "distinct", "first", "first", "union", "window"])
        with_, from_, columns = self._from(depth + 1)
        where = f" WHERE {self._condition(columns)}" if pick.random() < 0.5 else ""
        if shape == "first":
            view = self._first("", with_, from_, where, columns)
            return view.sql, view.columns
        if shape == "distinct":
            items = self._some(columns)
            listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_, _ in items)
            return f"{with_}SELECT DISTINCT {listed} FROM {from_}{where}", [one[1:] for one in items]
        if shape == "window":
            (sql, kind), (by, _) = pick.choice(columns), pick.choice(columns)
            items = [(sql, "id", kind), (f"count({sql}) OVER (PARTITION BY {by})", "n", "INTEGER")]
            items.append((f"rank() OVER (PARTITION BY {by} ORDER BY {sql} NULLS LAST)", "place", "INTEGER"))
            listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_, _ in items)
            return f"{with_}SELECT {listed} FROM {from_}{where}", [one[1:] for one in items]
        found = [(*self._settled(columns), name) for name in pick.sample(["n", "a", "m x", "last"], 2)]
        totals, held = ", ".join(f"{sql} AS {quoted(as_)}" for sql, _, as_ in found), [one[:0:-1] for one in found]
        if shape == "one":
            return f"{with_}SELECT {totals} FROM {from_}{where}", held
        having = f" HAVING {found[0][0]} IS NOT NULL" if pick.random() < 0.2 else ""
        taken = {as_ for *_, as_ in found}
        keys = [one for one in self._some(columns) if one[1] not in taken] or [
            (columns[0][0], "zz", columns[0][1])
        ]
        groups = ", ".join(sql for sql, _, _ in keys)
        shown = [one for one in keys if pick.random() < 0.8]
        listed = ", ".join([*(f"{sql} AS {quoted(as_)}" for sql, as_, _ in shown), totals])
        body = f"SELECT {listed} FROM {from_}{where} GROUP BY {groups}{having}"
        held = [*(one[1:] for one in shown), *held]
        if shape == "union" and not with_:
            return f"{body} UNION ALL {body}", held
        return f"{with_}{body}", held

    def _settled(self, columns: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """An aggregate and its type, whose last digits are the same in any order of rows."""
        pick = self.random
        sql, kind = pick.choice(columns)
        if kind == "BOOLEAN":
            return f"bool_or({sql})", kind
        whole = [one for one, its in columns if its == "INTEGER"]
        if whole and pick.random() < 0.3:
            return f"sum({pick.choice(whole)})", "INTEGER"
        return pick.choice(
            [("count(*)", "INTEGER"), (f"count({sql})", "INTEGER"), (f"min({sql})", kind), (f"max({sql})", kind)]
        )

    def _widened(self, sql: str, kind: str) -> str:
        """The same value, of a type that is another one until the branches of a union are one."""
        if kind == "TEXT":
            return self.random.choice([sql, "'x'"])
        if kind not in ("INTEGER", "DECIMAL(9,2)"):
            return sql
        return self.random.choice([sql, f"CAST({sql} AS DECIMAL(12,3))", f"CAST({sql} AS BIGINT)", "2"])

    def _lacking(self, name: str) -> View:
        """Outer joins of queries with outer joins; its key has the columns of all of them."""
        pick = self.random
        text, columns = "", list[tuple[str, str]]()
        for at, of in enumerate(pick.sample(["x", "y", "o"], pick.choice([2, 2, 3]))):
            inner = pick.choice(self.tables)
            source, held = quoted(inner.name), inner.columns
            if not at or pick.random() < 0.5:
                source, held = self._outer_joined()
                if pick.random() < 0.3:
                    source += f" UNION ALL {source}"
                source = f"({source})"
            mine = [(f"{of}.{quoted(column)}", kind) for column, kind in held]
            how = pick.choice(["LEFT", "LEFT", "RIGHT"]) if at == 1 else "LEFT"
            text += (f" {how} JOIN " if at else "") + f"{source} AS {of}"
            text += f" ON {self._on(columns, mine)}" if at else ""
            columns += mine
        listed = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(columns))
        where = f" WHERE {self._condition(columns)}" if pick.random() < 0.3 else ""
        keys = [(f"c{at}", kind) for at, (_, kind) in enumerate(columns)]
        distinct = "DISTINCT " if pick.random() < 0.5 else ""
        return View(name, f"SELECT {distinct}{listed} FROM {text}{where}", tuple(one for one, _ in keys), keys)

    def _beside(self, name: str) -> View:
        """Rows of a table, beside what is computed of the same value in another."""
        pick = self.random
        left, right = pick.choice(self.tables), pick.choice(self.tables)
        one = [(f"o.{quoted(column)}", kind) for column, kind in left.columns]
        two = [(f"r.{quoted(column)}", kind) for column, kind in right.columns]
        sql, kind = pick.choice(two)
        items = f"{sql} AS k, {self._settled(two)[0]} AS agg"
        where = f" WHERE {self._condition(two)}" if pick.random() < 0.4 else ""
        inner = f"SELECT {items} FROM {quoted(right.name)} AS r{where} GROUP BY {sql}"
        if pick.random() < 0.3:
            inner = (
                f"SELECT {sql} AS k, rank() OVER (PARTITION BY {sql} ORDER BY {two[0][0]} NULLS LAST) AS agg FROM "
            )
            inner += f"{quoted(right.name)} AS r{where}"
        same = [column for column, its in one if its == kind]
        on = f"{pick.choice(same)} = g.k" if same else "TRUE"
        on += f" AND {self._condition([*one, ('g.k', kind)])}" if pick.random() < 0.3 else ""
        order = [f"{quoted(left.name)} AS o", f"({inner}) AS g"]
        if pick.random() < 0.5:
            order.reverse()
        from_ = f"{order[0]} {pick.choice(['JOIN', 'LEFT JOIN', 'LEFT JOIN', 'RIGHT JOIN'])} {order[1]} ON {on}"
        all_columns = [*one, ("g.k", kind), ("g.agg", "")]
        listed = ", ".join(f"{column} AS c{at}" for at, (column, _) in enumerate(all_columns))
        keys = [(f"c{at}", its) for at, (_, its) in enumerate(all_columns[:-1])]
        if pick.random() < 0.5:
            by = pick.sample(range(len(keys)), pick.randint(1, len(keys)))
            keys = [keys[at] for at in by]
            listed = ", ".join(
                [*(f"{all_columns[at][0]} AS c{at}" for at in by), "count(*) AS n", "max(g.agg) AS m"]
            )
            groups = ", ".join(all_columns[at][0] for at in by)
            where = f" WHERE {self._condition([*one, ('g.k', kind)])}" if pick.random() < 0.4 else ""
            sql = f"SELECT {listed} FROM {from_}{where} GROUP BY {groups}"
            return View(name, sql, tuple(as_ for as_, _ in keys), keys)
        return View(name, f"SELECT DISTINCT {listed} FROM {from_}", tuple(as_ for as_, _ in keys), keys)

    def _outer_joined(self) -> tuple[str, list[tuple[str, str]]]:
        pick = self.random
        left, right = pick.choice(self.tables), pick.choice(self.tables)
        one = [(f"x.{quoted(column)}", kind) for column, kind in left.columns]
        two = [(f"y.{quoted(column)}", kind) for column, kind in right.columns]
        listed = ", ".join(f"{sql} AS i{at}" for at, (sql, _) in enumerate([*one, *two]))
        how = pick.choice(["LEFT", "RIGHT"])
        source = f"SELECT {listed} FROM {quoted(left.name)} x {how} JOIN {quoted(right.name)} y"
        held = [(f"i{at}", kind) for at, (_, kind) in enumerate([*one, *two])]
        return f"{source} ON {self._on(one, two)}", held

    def gain(self, said: Sequence[str]) -> dict[str, list[str]]:
        """Tables gain columns with some of these names: the new ones of each, which are texts, NULL so far."""
        found = {}
        for table in self.tables:
            taken = {column.lower() for column, _ in table.columns}
            names = [one for one in said if one.lower() not in taken]
            found[table.name] = self.random.sample(names, min(4, len(names)))
            table.columns += [(one, "TEXT") for one in found[table.name]]
            for key, row in table.rows.items():
                table.rows[key] = (*row, *(None for _ in found[table.name]))
        return found

    def _aggregate(self, columns: Sequence[tuple[str, str]]) -> tuple[str, str]:
        pick = self.random
        sql, kind = pick.choice(columns)
        found = pick.choice(["count(*)", f"count({sql})", f"min({sql})", f"max({sql})", f"count(DISTINCT {sql})"])
        numbers = [one for one, its in columns if its in NUMBERS]
        if kind == "BOOLEAN":
            found = pick.choice(["count(*)", f"count({sql})", f"bool_and({sql})", f"bool_or({sql})"])
        elif numbers and pick.random() < 0.6:
            number = pick.choice(numbers)
            average = f"avg({self._exact(columns)})"
            found = pick.choice(
                [f"sum({number})", average, f"sum(DISTINCT {number})", f"sum({number}) + count(*)"]
            )
        if pick.random() < 0.2 and "+" not in found:
            found += f" FILTER (WHERE {self._condition(columns)})"
        return found, kind

    def _exact(self, columns: Sequence[tuple[str, str]]) -> str:
        """A number whose average is the same in any order of rows: DuckDB adds those of HUGE as floats."""
        return self.random.choice([sql for sql, kind in columns if kind in NUMBERS - {HUGE}] or ["1"])

    def _joined(self) -> tuple[str, str, list[tuple[str, str]]]:
        """FROM of inner joins alone."""
        pick = self.random
        text, columns = "", []
        readable: list[Table | View] = [*self.tables, *(one for one in self.views if one.columns)]
        for at, name in enumerate(pick.sample(["o", "c", "orders", "t 1"], pick.choice([1, 2, 2, 3]))):
            base = pick.choice(readable)
            mine = [(f"{quoted(name)}.{quoted(column)}", kind) for column, kind in base.columns]
            joined = pick.choice([" JOIN ", ", "]) if at else ""
            text += f"{joined}{quoted(base.name)} AS {quoted(name)}"
            text += f" ON {self._on(columns, mine)}" if joined == " JOIN " else ""
            columns = [*columns, *mine]
        return "", text, columns

    def _sum(self, columns: Sequence[tuple[str, str]]) -> str:
        """A count or sum, or some of them."""
        pick = self.random
        numbers = [sql for sql, kind in columns if kind in NUMBERS] or ["1"]
        found = pick.choice(["count(*)", f"count({pick.choice(columns)[0]})", f"sum({pick.choice(numbers)})"])
        if self.dialect == "postgres" and pick.random() < 0.2:  # in DuckDB the group is computed again
            found = f"avg({pick.choice(numbers)})"
        if pick.random() < 0.3:
            found += f" FILTER (WHERE {self._condition(columns)})"
        return f"coalesce({found}, -1) + {self._sum(columns)}" if pick.random() < 0.2 else found

    def _grouped(self, name: str, with_: str, from_: str, where: str, columns: Sequence[tuple[str, str]]) -> View:
        pick = self.random
        keys = self._some(columns)
        aggregates = [(self._aggregate(columns)[0], f"agg{at}") for at in range(pick.randint(1, 3))]
        items = [(sql, as_) for sql, as_, _ in keys] + aggregates
        # of a group's column: 1.0 and 1.00 are one group, of which a second table would not know which it is
        if finer := pick.random() < 0.1:
            items = [(f"CAST({sql} AS TEXT)", as_) for sql, as_, _ in keys] + aggregates
        listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_ in items)
        way = 1 if finer else pick.random()
        groups = ", ".join(sql for sql, _, _ in keys)
        if way < 0.4:
            groups = ", ".join(str(at) for at, _ in enumerate(keys, 1))
        elif way < 0.5 and self.dialect == "duckdb":
            groups = "ALL"
        having = f" HAVING {self._aggregate(columns)[0]} IS NOT NULL" if pick.random() < 0.1 else ""
        having = having or (f" HAVING count(*) > {pick.choice([1, 2])}" if pick.random() < 0.2 else "")
        key = [as_ for _, as_, _ in keys]
        if pick.random() < 0.05:
            key = key[: pick.randint(1, len(key))]
        kinds = [] if finer else [(as_, kind) for _, as_, kind in keys]
        return View(
            name, f"{with_}SELECT {listed} FROM {from_}{where}\nGROUP BY {groups}{having}", tuple(key), kinds
        )

    def _cast(self, name: str) -> View:
        """Of texts that are numbers, among others that a condition leaves out."""
        pick = self.random
        with_, from_, columns = self._from()
        texts = [sql for sql, kind in columns if kind == "TEXT"] or ["'1'"]
        sql = pick.choice(texts)
        cast, asked = f"CAST({sql} AS INTEGER)", f"{sql} IN ('1', '01')"
        where = f" WHERE {asked}" if pick.random() < 0.7 else f" WHERE {asked} AND {self._condition(columns)}"
        if pick.random() < 0.1:
            where = ""
        rest = f"{self._aggregate(columns)[0]} AS agg0 FROM {from_}{where}"
        return View(name, f"{with_}SELECT {cast} AS k, {rest} GROUP BY {cast}", ("k",), [("k", "INTEGER")])

    def _one(self, name: str, with_: str, from_: str, where: str, columns: Sequence[tuple[str, str]]) -> View:
        aggregates = [self._aggregate(columns)[0] for _ in "ab"]
        listed = ", ".join(f"{sql} AS agg{at}" for at, sql in enumerate(aggregates))
        return View(name, f"{with_}SELECT {listed} FROM {from_}{where}", (), [])

    def _first(self, name: str, with_: str, from_: str, where: str, columns: Sequence[tuple[str, str]]) -> View:
        pick = self.random
        items = self._some(columns)
        listed = ", ".join(f"{sql} AS {quoted(as_)}" for sql, as_, _ in items)
        orders = [" NULLS LAST", " DESC NULLS LAST", " NULLS FIRST"] if self.dialect == "spark" else None
        part = items[: pick.randint(1, len(items))]
        by = ", ".join(sql for sql, _, _ in part)
        order = ", ".join(
            sql + pick.choice(orders or ["", " DESC", " NULLS FIRST"])
            for sql, _ in pick.sample(columns, len(columns))
        )
        kinds, key = [one[1:] for one in items], tuple(as_ for _, as_, _ in part)
        if len(tables := {sql.partition(".")[0] for sql, _ in columns}) == 1 and pick.random() < 0.3:
            alone = f"{tables.pop()}."  # names that an output column can have, too
            by, order = by.replace(alone, ""), order.replace(alone, "")
        if self.dialect == "duckdb" and pick.random() < 0.6:
            window = f"row_number() OVER (PARTITION BY {by} ORDER BY {order}) = 1"
            return View(name, f"{with_}SELECT {listed} FROM {from_}{where}\nQUALIFY {window}", key, kinds)
        if self.dialect == "spark":
            window = f'row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS "place"'
            ranked = f"(SELECT {listed}, {window} FROM {from_}{where}\n) AS ranked"
            names = ", ".join(f"ranked.{quoted(as_)}" for _, as_, _ in items)
            return View(name, f"{with_}SELECT {names} FROM {ranked} WHERE ranked.place = 1", key, kinds)
        sql = f"{with_}SELECT DISTINCT ON ({by}) {listed} FROM {from_}{where}\nORDER BY {by}, {order}"
        return View(name, sql, key, kinds)

    def _union(self, name: str) -> View:
        pick = self.random
        parts, kinds = [], [pick.choice(["INTEGER", "TEXT"]) for _ in range(pick.randint(1, 3))]
        for at in range(pick.choice([2, 2, 3])):
            _, from_, columns = self._from(1)
            items = []
            for number, kind in enumerate(kinds):
                same = [sql for sql, its in columns if its == kind]
                items.append(pick.choice(same) if same else {"INTEGER": "7", "TEXT": "'seven'"}[kind])
                if pick.random() < 0.3:
                    items[-1] = self._widened(items[-1], kind)
                if not at:
                    items[-1] += f" AS u{number}"
            where = f" WHERE {self._condition(columns)}" if pick.random() < 0.5 else ""
            parts.append(f"SELECT {', '.join(items)} FROM {from_}{where}")
        columns = [(f"u{at}", kind) for at, kind in enumerate(kinds)]
        return View(name, "\nUNION ALL ".join(parts), tuple(as_ for as_, _ in columns), columns)
