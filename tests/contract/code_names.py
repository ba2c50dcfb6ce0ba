"""All names that occur in the product's code where it meets a user's columns, and tables that have them.

Collected from the source: what names a column in Spark and Arrow, keys of mappings, and every word of its SQL. The
values are numbers, so that nothing but the names decides what they mean.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / "backfill_cli"
PLACES = (
    *("engine/staging", "engine/spool", "engine/verify", "formats", "lake", "model", "sinks", "spark"),
    "upstreams",
)
OURS = "_backfill_"
FOREIGN = (
    "_metadata",
    "_op",
    "_seq",
    "_ms",
    "_read",
    "_error",
    "rowid",
    "filename",
    "file_row_number",
    "_id",
    "__op",
)
"""Of other systems, and those that were ours."""
_SQL = re.compile(
    r"\b(SELECT|FROM|WHERE|MERGE|INSERT|UPDATE|DELETE|BY|JOIN|AS|CASE|WITH|OVER|STRING|BIGINT|INT)\b"
)
_WORD = re.compile(r"(?<![\w'])[A-Za-z_]\w*(?!['\w])")
_NAMES = frozenset(
    {"alias", "append_column", "array_contains", "col", "column", "count", "drop", "field", "getField", "groupBy"}
    | {"listed", "names", "numbered", "orderBy", "posexplode", "quoted", "select", "struct", "where", "withColumn"}
    | {"withColumnRenamed"}
)

Row = dict[str, int | None]


@cache
def names(*without: str) -> tuple[str, ...]:
    """In the order of their text; each once, whatever its case. without: folders of systems that are not there."""
    found: dict[str, str] = {}
    for name in sorted({*FOREIGN, *_of_code(frozenset(without))}, key=lambda name: (name.lower(), name.isupper())):
        if not name.lower().startswith(OURS):
            found.setdefault(name.lower(), name)
    return tuple(found.values())


def _of_code(without: frozenset[str]) -> Iterator[str]:
    for path, found in _by_file():
        if without.isdisjoint(path.parts):
            yield from found


@cache
def _by_file() -> list[tuple[Path, list[str]]]:
    files = sorted(one for place in PLACES for one in (ROOT / place).rglob("*.py"))
    return [(file, list(_of_file(file))) for file in files]


def _of_file(path: Path) -> Iterator[str]:
    """Not by `ast.walk` and `ast.iter_child_nodes`, which take three times as long: each process does this."""
    parents: dict[ast.AST, ast.AST] = {}
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    for node in todo:
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if value.__class__ is list else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                    parents[child] = node
                    todo.append(child)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _of_text(node, parents)


def _of_text(node: ast.Constant, parents: dict[ast.AST, ast.AST]) -> Iterator[str]:
    text, parent = str(node.value), parents[node]
    if isinstance(parent, ast.Expr):
        return
    whole = "".join(
        str(part.value) if isinstance(part, ast.Constant) else "0" for part in getattr(parent, "values", ())
    )
    if _SQL.search(text) or (isinstance(parent, ast.JoinedStr) and _SQL.search(whole)):
        yield from _WORD.findall(text)
        return
    if isinstance(parent, ast.JoinedStr):  # f"k{at}"
        yield from re.findall(r"[A-Za-z_]\w*", whole) if len(whole) < 12 else ()
        return
    if not re.fullmatch(r"[A-Za-z_]\w*", text):
        return
    if isinstance(parent, ast.Subscript):
        yield text
    while isinstance(parent, ast.List | ast.Tuple | ast.Starred):
        parent = parents[parent]
    if isinstance(parent, ast.Call):
        called = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        if called in _NAMES:
            yield text


@dataclass(frozen=True)
class Table:
    """A table of whole numbers. Every column of the key decides for some row."""

    key: tuple[str, ...]
    values: tuple[str, ...]
    rows: int = 33

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.values)

    def row(self, at: int, value: int) -> Row:
        """Row `at`: the key is 1 in every column, but for those that are 2 in this row; row 0 has only ones."""
        key = {name: 2 if number % (self.rows - 1) + 1 == at else 1 for number, name in enumerate(self.key)}
        return {**key, **{name: value + number for number, name in enumerate(self.values)}}

    def moved(self, at: int) -> Row:
        """Row `at` with another key."""
        return {**self.row(at, at * 1000), self.key[at % len(self.key)]: 3}

    def snapshot(self) -> list[Row]:
        return [self.row(at, at * 1000) for at in range(self.rows)]

    def events(self) -> list[tuple[Row | None, Row | None]]:
        """(row before, row after): of every four rows one has other values, one is gone, one has another key."""
        found: list[tuple[Row | None, Row | None]] = [(None, dict.fromkeys(self.columns, 7))]
        for at in range(self.rows):
            after = (self.row(at, -at * 1000), None, self.moved(at))
            if at % 4 < 3:
                found.append((self.row(at, at * 1000), after[at % 4]))
        return found

    def changes(self) -> list[tuple[str, Row]]:
        """The same by key: ('U' or 'D', row)."""
        found: list[tuple[str, Row]] = []
        for before, after in self.events():
            if before is not None and (after is None or self.key_of(before) != self.key_of(after)):
                found.append(("D", {**before, **dict.fromkeys(self.values)}))
            if after is not None:
                found.append(("U", after))
        return found

    def after(self) -> list[Row]:
        """The rows after the changes, by a dictionary."""
        held = {self.key_of(row): row for row in self.snapshot()}
        for op, row in self.changes():
            held.pop(self.key_of(row), None)
            if op == "U":
                held[self.key_of(row)] = row
        return self.ordered(list(held.values()))

    def key_of(self, row: Row) -> tuple[int | None, ...]:
        return tuple(row[name] for name in self.key)

    def ordered(self, rows: Sequence[dict[str, Any]]) -> list[Row]:
        return sorted(({name: row[name] for name in self.columns} for row in rows), key=self.key_of)


def tables(of: Sequence[str], keys: int, values: int, rows: int = 33) -> list[Table]:
    """Tables of so many columns, in and beside the key: each name is in one key, and beside others'."""
    around, columns = [*of, *of], min(keys + values, len(of))
    starts = range(0, len(of), keys)
    return [Table(tuple(around[at : at + keys]), tuple(around[at + keys : at + columns]), rows) for at in starts]
