"""What can be said of a transform's SQL without Spark: faults, names, and what uses a column that a change lacks.

Imported inside functions only: the parser takes longer to load than a command takes.
"""

from collections.abc import Iterable, Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backfill_cli.config.faults import spell_path
from backfill_cli.config.sections import Table, Transform
from backfill_cli.contracts import own

# Spark 4 functions whose value does not depend on the row alone: replaying an epoch would write other rows.
NOT_DETERMINISTIC = frozenset(
    {"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"}
    | {"monotonically_increasing_id", "spark_partition_id"}
    | {"input_file_name", "input_file_block_start", "input_file_block_length"}
    | {"now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"}
    | {"current_timezone", "current_user", "user", "session_user", "version"}
    | {"current_catalog", "current_database", "current_schema"}
    | {"reflect", "java_method", "try_reflect"}
)
ROWS_FROM_ONE = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"}
    | {"stack", "json_tuple"}
)

Steps = tuple[str | int, ...]


def transform_faults(transform: Transform, tables: Sequence[Table], at: Steps) -> list[str]:
    """Faults of a transform for the tables that it applies to, each with its path in the file."""
    faults: list[str] = []
    columns: list[exp.Expr] = []
    for index, text in enumerate(transform.select or ()):
        path = (*at, "select", index)
        found = _parse(text, path, faults)
        if found is not None:
            columns.append(found)
            faults += [f"{spell_path(path)}: {what}" for what in _column_faults(found)]
    if transform.where is not None:
        path = (*at, "where")
        found = _parse(transform.where, path, faults)
        if found is not None:
            faults += [f"{spell_path(path)}: {what}" for what in (*_reserved(found), *_not_of_one_row(found))]
    if transform.select and not faults:
        faults += [f"{spell_path((*at, 'select'))}: {what}" for what in _twice(columns)]
        for table in tables:
            faults += [f"{spell_path((*at, 'select'))}: {what}" for what in _key_faults(columns, table)]
    return faults


def condition_faults(text: str, columns: Sequence[str]) -> list[str]:
    """What keeps `text` from being a condition on one row that has these columns."""
    faults: list[str] = []
    found = _parse(text, ("where",), faults)
    if found is None:
        return faults
    known = {own.fold(name) for name in columns}
    unknown = {node.name for node in found.find_all(exp.Column) if own.fold(node.parts[0].name) not in known}
    missing = [f"the table has no column {name!r}" for name in sorted(unknown)]
    return [*_reserved(found), *_not_of_one_row(found), *missing]


def sink_key(table: Table, transform: Transform) -> tuple[str, ...]:
    """The key's columns as the sink names them, in the key's order. The transform has no faults."""
    columns = [_parsed(text) for text in transform.select or ("*",)]
    return tuple(name for column in table.key if (name := name_in_sink(columns, column)) is not None)


def _parse(text: str, path: Steps, faults: list[str]) -> exp.Expr | None:
    where = path[-1] == "where"
    try:
        statements = sqlglot.parse(f"SELECT 1 WHERE {text}" if where else f"SELECT {text}", dialect="spark")
    except SqlglotError as error:
        faults.append(f"{spell_path(path)}: not a Spark SQL expression{_where(error, text)}")
        return None
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select):
        faults.append(f"{spell_path(path)}: must be one expression, not a statement")
        return None
    clauses = {name for name, value in select.args.items() if value} - {"expressions", "where", "kind"}
    if clauses or len(select.expressions) != 1 or (not where and select.args.get("where")):
        faults.append(f"{spell_path(path)}: must be one expression, not a list or a query")
        return None
    found: exp.Expr = select.args["where"].this if where else select.expressions[0]
    return found


def _where(error: SqlglotError, text: str) -> str:
    details = getattr(error, "errors", None)
    near = details[0].get("highlight") if details else None
    return f" near {near!r}" if near and near in text else ""


def _column_faults(column: exp.Expr) -> Iterator[str]:
    yield from _reserved(column)
    yield from _not_of_one_row(column)
    if isinstance(column, exp.Star):
        return
    if not isinstance(column, exp.Alias | exp.Column):
        yield f"give it a name: {column.sql(dialect='spark')} AS name"
    elif isinstance(column, exp.Column) and len(column.parts) > 1:
        yield f"give it a name: {column.sql(dialect='spark')} AS {column.name}"


def _reserved(expression: exp.Expr) -> Iterator[str]:
    for node in expression.find_all(exp.Identifier):
        if own.is_own(node.name):
            yield f"{node.name}: names that begin with {own.PREFIX} are backfill's own"


def _not_of_one_row(expression: exp.Expr) -> Iterator[str]:
    for node in expression.walk():
        name = _function_name(node)
        if name in NOT_DETERMINISTIC:
            yield f"{name} is not deterministic: the same row must always give the same result"
        elif isinstance(node, exp.AggFunc | exp.Window):
            yield f"{name or 'OVER'} reads more than one row"
        elif isinstance(node, exp.Query):
            yield "a subquery reads more than one row"
        elif name in ROWS_FROM_ONE or isinstance(node, exp.UDTF):
            yield f"{name} turns one row into several"


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    if isinstance(node, exp.Func):
        return node.sql_name().lower()
    return ""


def _output_name(column: exp.Expr) -> str | None:
    return None if isinstance(column, exp.Star) else str(column.alias_or_name)


def _twice(columns: Sequence[exp.Expr]) -> Iterator[str]:
    seen: set[str] = set()
    for name in map(_output_name, columns):
        if name is not None and name.lower() in seen:
            yield f"names {name} more than once"
        seen.add((name or "").lower())


def _key_faults(columns: Sequence[exp.Expr], table: Table) -> Iterator[str]:
    for key in table.key:
        if name_in_sink(columns, key) is None:
            yield (
                f"the key column {key} of table {table.name} must be selected unchanged, renamed at most "
                f"({key}, or {key} AS other_name)"
            )


def name_in_sink(columns: Sequence[exp.Expr], key: str) -> str | None:
    """The sink's name for a source column; None if no item of the select is just that column."""
    for column in columns:
        if isinstance(column, exp.Star):
            dropped = {
                str(name.name).lower() for name in column.args.get("except_") or column.args.get("except") or ()
            }
            if key.lower() not in dropped:
                return key
            continue
        plain = column.this if isinstance(column, exp.Alias) else column
        if isinstance(plain, exp.Column) and len(plain.parts) == 1 and plain.name.lower() == key.lower():
            return str(column.alias_or_name)
    return None


def kept(transform: Transform, columns: Iterable[str]) -> dict[str, str]:
    """Source column → its name in the sink, for columns that reach the sink unchanged or just renamed."""
    select = [_parsed(text) for text in transform.select or ("*",)]
    named = {column: name_in_sink(select, column) for column in columns}
    return {column: name for column, name in named.items() if name is not None}


def computing(transform: Transform, columns: Iterable[str]) -> list[str]:
    """The expressions that need the value of one of these columns; a `where` needs it to decide on the row.

    With a `where`, every column that reaches the sink counts: a row that returns to the sink has to be complete.
    """
    columns = list(columns)
    wanted = {name.lower() for name in columns}
    found = []
    for text in transform.select or ():
        item = _parsed(text)
        plain = item.this if isinstance(item, exp.Alias) else item
        if isinstance(plain, exp.Star) or (isinstance(plain, exp.Column) and len(plain.parts) == 1):
            continue
        if _names_one(plain, wanted):
            found.append(text)
    if transform.where is not None and (kept(transform, columns) or _names_one(_parsed(transform.where), wanted)):
        found.append(f"where {transform.where}")
    return found


def aliases(select: Sequence[str]) -> set[str]:
    """The names that items of `select` give (AS), in lower case."""
    return {item.alias.lower() for item in map(_parsed, select) if isinstance(item, exp.Alias)}


def naming(select: Sequence[str], names: set[str]) -> list[str]:
    """The items of `select` that read one of these names, which are in lower case."""
    return [text for text in select if names and _names_one(_parsed(text), names)]


def _parsed(text: str) -> exp.Expr:
    """An expression without faults."""
    return sqlglot.parse_one(text, dialect="spark")


def _names_one(expression: exp.Expr, wanted: set[str]) -> bool:
    """Whether the expression reads one of these columns, or a field of one."""
    return any(one.parts[0].name.lower() in wanted for one in expression.find_all(exp.Column))
