"""The columns of tables that a SELECT names, by its text alone: nothing has to exist yet.

What is not certain counts: a table whose columns the text does not settle has all of them used. Imported inside
functions only, as `reading.py`.
"""

from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from backfill_cli.contracts import own
from backfill_cli.derived.engines import ENGINES, Engine


def used(
    sql: str, dialect: str, tables: Mapping[str, tuple[str, ...]], whole: bool = False
) -> dict[str, tuple[str, ...] | None]:
    """By table that the SELECT reads: the columns that it names, as it writes them first; None: any.

    Where names have a case, they are as the engine compares them: what is not quoted is in lower case.
    tables: by name, what a SELECT may call it besides. whole: the text is one that is computed whole, where a
    query in FROM can name what FROM around it has, too. Of a text that is no SELECT: any, of all tables.
    """
    found: dict[str, dict[str, str] | None] = {}
    try:
        tree = sqlglot.parse_one(sql, dialect=dialect)
        scopes = traverse_scope(tree)
    except (SqlglotError, RecursionError):
        return dict.fromkeys(tables)
    if not isinstance(tree, exp.Query):
        return dict.fromkeys(tables)
    sources = {id(scope.expression): set(map(own.fold, _in_from(scope))) for scope in scopes}
    for scope in scopes:
        leaves = _in_from(scope)
        for at, (leaf, source) in enumerate(leaves.items()):
            if not isinstance(source, exp.Table):
                continue
            around = _around(scope, sources, whole)
            names = _of(scope, leaf, at, ENGINES[dialect], around, alone=len(leaves) == 1)
            inside = _inside(scope, leaf, sources, whole)
            if names is not None:
                names = {**{own.fold(one.name): _name(one, ENGINES[dialect]) for one in inside}, **names}
            for table in _called(source, tables):
                held = found.setdefault(table, {})
                found[table] = None if held is None or names is None else {**held, **names}
    return {table: None if names is None else tuple(names.values()) for table, names in found.items()}


def _in_from(scope: Scope) -> dict[str, exp.Expr | Scope]:
    """What a SELECT has in FROM, by name; also what SEMI JOIN and ANTI JOIN only look for."""
    return {name: scope.sources[name] for name, _ in scope.references if name in scope.sources}


def _of(
    scope: Scope, leaf: str, at: int, engine: Engine, around: set[str], *, alone: bool
) -> dict[str, str] | None:
    """The columns of a table in FROM that one SELECT names, folded → as `used` has them; None: any.

    at: which one it is, from 0. around: what else it can name. alone: it is the only one, so that a column without
    a table before it is its own.
    """
    tree, names = scope.expression, dict[str, str]()
    made = {own.fold(one.alias) for one in getattr(tree, "selects", ()) if isinstance(one, exp.Alias)}
    for joined, join in enumerate(tree.args.get("joins") or (), start=1):
        if str(join.args.get("method") or "").upper() == "NATURAL":
            return None
        if at <= joined:
            names |= {own.fold(one.name): _name(one, engine) for one in join.args.get("using") or ()}
    tests = isinstance(tree.parent, exp.Exists)  # whose columns nobody sees
    stars = [one for one in scope.find_all(exp.Star) if not (tests and one.parent is tree)]
    if scope.find(exp.Columns) or not all(isinstance(one.parent, (exp.Count, exp.Column)) for one in stars):
        return None
    for column in scope.find_all(exp.Column):
        first, *rest = column.parts
        if (rest and own.fold(first.name) in around) or _is_output(column, tree, engine):
            continue
        if own.fold(first.name) == own.fold(leaf):
            if not rest or isinstance(rest[0], exp.Star):
                return None  # the whole row
            named = rest[0]
        elif alone:
            named = first
            if own.fold(named.name) in made and not _is_made_of_itself(tree, named.name):
                return None  # a column, or what the SELECT makes: whoever reads it all says which
        elif not rest:
            return None
        else:
            continue
        names.setdefault(own.fold(named.name), _name(named, engine))
    return names


def _around(scope: Scope, sources: Mapping[int, set[str]], whole: bool) -> set[str]:
    """What a query can name besides what is in its FROM: what FROM around it has, by other names, folded.

    sources: what each has in FROM, folded, by its id. whole: as of `used`.
    """
    found, inner = set[str](), scope.expression
    while (outer := _outer(inner, whole)) is not None:
        found |= sources.get(id(outer), set())
        inner = outer
    return found - sources[id(scope.expression)]


def _inside(scope: Scope, leaf: str, sources: Mapping[int, set[str]], whole: bool) -> Iterator[exp.Expr]:
    """The columns of a table in FROM that queries inside the SELECT name, by the table's name."""
    for column in scope.expression.find_all(exp.Column):
        first, *rest = column.parts
        name = own.fold(first.name)
        query: exp.Expr | None = column.find_ancestor(exp.Select)
        if not rest or name != own.fold(leaf) or query is scope.expression:
            continue
        while query is not None and name not in sources.get(id(query), set()):
            query = _outer(query, whole)
        if query is scope.expression:
            yield rest[0]


def _outer(query: exp.Expr, whole: bool) -> exp.Expr | None:
    """The SELECT around it, of which it can name columns."""
    inner, outer = query, query.parent
    while outer is not None and not isinstance(outer, exp.Select):
        if isinstance(outer, (exp.From, exp.Join, exp.CTE)) and inner is outer.this and not whole:
            return None
        inner, outer = outer, outer.parent
    return outer


def _name(named: exp.Expr, engine: Engine) -> str:
    return named.name if engine.ignores_case else engine.name(named.name, bool(named.args.get("quoted")))


def _is_made_of_itself(tree: exp.Expr, name: str) -> bool:
    """Whether each output column of that name reads a column of that name: then both are to be there."""
    return all(
        any(own.fold(column.parts[-1].name) == own.fold(name) for column in one.find_all(exp.Column))
        for one in getattr(tree, "selects", ())
        if isinstance(one, exp.Alias) and own.fold(one.alias) == own.fold(name)
    )


def _is_output(column: exp.Column, tree: exp.Expr, engine: Engine) -> bool:
    """Whether it stands alone in ORDER BY, which takes it for what the SELECT calls so, before any column."""
    if len(column.parts) > 1 or not isinstance(column.parent, exp.Ordered):
        return False
    outputs = [one.args["alias"] for one in getattr(tree, "selects", ()) if isinstance(one, exp.Alias)]
    name = own.fold if engine.ignores_case else str
    return column.parent.parent is tree.args.get("order") and name(_name(column.parts[0], engine)) in (
        name(_name(one, engine)) for one in outputs
    )


def _called(source: exp.Table, tables: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The tables that a name in FROM can mean: that which has the whole name, else each with its last part."""
    whole = own.fold(".".join(part.name for part in source.parts))
    exact = [name for name, called in tables.items() if whole in map(_plain, (name, *called))]
    last = whole.rpartition(".")[2]
    yield from exact or (
        name
        for name, called in tables.items()
        if last in (_plain(one).rpartition(".")[2] for one in (name, *called))
    )


def _plain(name: str) -> str:
    return own.fold(name.replace('"', ""))
