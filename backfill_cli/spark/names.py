"""Names in Spark's SQL: the only place that quotes them, and texts."""

import json
import re

from backfill_cli.spark.api import Column, F

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def backticked(name: str) -> str:
    """A name as SQL, whatever characters it contains."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def in_select(expression: str, name: str) -> str:
    """The option of a transform that makes this column, as in the config file; `…` stands for the others.

    expression: SQL in which the names are written by `plain`.
    """
    return f"select = [{json.dumps(f'{expression} AS {plain(name)}', ensure_ascii=False)}, …]"


def as_text(name: str, kind: str) -> str:
    """The hint for a column that the sink cannot hold: the option of a transform that makes it text.

    kind: the Spark type without a counterpart, that of the column or one inside it.
    """
    cast = "interval" in kind or kind == "void"
    text = f"CAST({plain(name)} AS STRING)" if cast else f"to_json({plain(name)})"
    return f"convert it in the transform: {in_select(text, name)}"


def plain(name: str) -> str:
    """A name as SQL, quoted where it must be."""
    return name if _PLAIN.fullmatch(name) else backticked(name)


def quoted(name: str, of: str = "") -> Column:
    """A column by its exact name; `of`: the struct that holds it."""
    return F.col(f"{of}.{backticked(name)}" if of else backticked(name))
