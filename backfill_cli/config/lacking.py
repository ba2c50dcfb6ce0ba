"""Which columns reach the sink unchanged, and which expressions use one: of those that a change may leave out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot import exp

    from backfill_cli.config.sections import Transform


def kept(transform: "Transform", columns: "Iterable[str]") -> dict[str, str]:
    """Source column → its name in the sink, for columns that reach the sink unchanged or just renamed."""
    from sqlglot import parse_one

    from backfill_cli.config.transforms import name_in_sink

    select = [parse_one(text, dialect="spark") for text in transform.select or ("*",)]
    named = {column: name_in_sink(select, column) for column in columns}
    return {column: name for column, name in named.items() if name is not None}


def computing(transform: "Transform", columns: "Iterable[str]") -> list[str]:
    """The expressions that need the value of one of these columns; a `where` needs it to decide on the row.

    With a `where`, every column that reaches the sink counts: a row that returns to the sink has to be complete.
    """
    from sqlglot import exp, parse_one

    columns = list(columns)
    wanted = {name.lower() for name in columns}
    found = []
    for text in transform.select or ():
        item = parse_one(text, dialect="spark")
        plain = item.this if isinstance(item, exp.Alias) else item
        if isinstance(plain, exp.Star) or (isinstance(plain, exp.Column) and len(plain.parts) == 1):
            continue
        if _names_one(plain, wanted):
            found.append(text)
    if transform.where is not None:
        condition = parse_one(transform.where, dialect="spark")
        if kept(transform, columns) or _names_one(condition, wanted):
            found.append(f"where {transform.where}")
    return found


def aliases(select: "Sequence[str]") -> set[str]:
    """The names that items of `select` give (AS), in lower case."""
    from sqlglot import exp, parse_one

    items = (parse_one(text, dialect="spark") for text in select)
    return {item.alias.lower() for item in items if isinstance(item, exp.Alias)}


def naming(select: "Sequence[str]", names: set[str]) -> list[str]:
    """The items of `select` that read one of these names, which are in lower case."""
    from sqlglot import parse_one

    return [text for text in select if names and _names_one(parse_one(text, dialect="spark"), names)]


def _names_one(expression: "exp.Expr", wanted: set[str]) -> bool:
    """Whether the expression reads one of these columns, or a field of one."""
    from sqlglot import exp

    return any(one.parts[0].name.lower() in wanted for one in expression.find_all(exp.Column))
