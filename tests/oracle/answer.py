"""What a reference reader answers for an input."""

from dataclasses import dataclass, field

from oracle.plain import Row


@dataclass(frozen=True)
class Rows:
    """Exactly these rows, in any order.

    types: the sink's columns, in order, with DuckDB's types; None: not compared.
    or_refused: why a refusal is right too, though these are the rows; empty: it is not.
    """

    rows: tuple[Row, ...]
    types: tuple[tuple[str, str], ...] | None = None
    or_refused: str = ""


@dataclass(frozen=True)
class Refused:
    """No exact rows exist. why: in words, for people. names: what the error must name, the file or the column."""

    why: str
    names: tuple[str, ...] = field(default=())


Answer = Rows | Refused
