"""What happens to a row between upstream and sink: `where`, then `select`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData, UsageError
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from backfill_cli.config import JobConfig
    from backfill_cli.config.sections import Transform

_DATA_EXCEPTION = "22"
"""The SQLSTATE class for a value that an expression cannot take: a division by zero, a cast, an overflow."""


def failure(exc: Exception, config: "JobConfig") -> BadData | None:
    """The error for a Spark failure caused by a value that does not suit the transform; None for any other."""
    from pyspark.errors import PySparkException

    if not isinstance(exc, PySparkException) or not (exc.getSqlState() or "").startswith(_DATA_EXCEPTION):
        return None
    if all(config.transform_of(table.name).is_empty for table in config.tables):
        return None
    said, _, where = str(exc).partition("== SQL")
    said = " ".join(said.partition(" SQLSTATE")[0].partition(" If necessary set ")[0].split())
    sql = " ".join(line for line in where.splitlines()[1:] if line.strip(" ^=")).strip()
    return BadData(
        f"the transform cannot be computed for a row{f', in {sql!r}' if sql else ''}: {said}",
        f"correct [transform]: use try_divide, try_cast, or a where that excludes such rows; then {START_OVER}",
    )


@contextmanager
def fitting() -> Iterator[None]:
    """Raises UsageError for SQL of the transform that does not fit the columns."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as exc:
        raise UsageError(
            f"the transform does not fit the upstream's columns: {cause_in(str(exc))}",
            f"correct [transform]; then {START_OVER}",
        ) from exc


def rows(frame: "DataFrame", transform: "Transform") -> "DataFrame":
    """Snapshot rows in the sink's form: `where`, then `select`."""
    kept = frame if transform.where is None else frame.where(transform.where)
    return kept.selectExpr(*(transform.select or ["*"]))


def images(changes: "DataFrame") -> "Column":
    """For counting: not NULL for a change that only holds the state before an update (contracts.ChangeReads)."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    place = changes.schema[own.SEQ].dataType
    told = isinstance(place, StructType) and "image" in place.names
    return F.when(F.col(f"{own.SEQ}.image"), 1) if told else F.lit(None)


def shaped(net: "DataFrame", transform: "Transform", lacking: Mapping[str, str] | None = None) -> "DataFrame":
    """Net changes in the sink's form, `(own.OP, [own.UNSENT,] columns…)`: a row that `where` excludes is a 'D'.

    net: as from cdc.net. lacking: of the columns that rows can lack, the sink's names of those that it receives;
    no expression computes with a column that rows can lack.
    """
    from pyspark.sql import functions as F

    if transform.is_empty:
        return net
    row = net.drop(own.UNSENT)
    if transform.where is not None:
        stays = f"{own.OP} = 'U' AND coalesce(({transform.where}), false)"
        net = net.withColumn(own.OP, F.expr(f"CASE WHEN {stays} THEN 'U' ELSE 'D' END"))
    named = F.array(*(F.when(F.array_contains(own.UNSENT, c), F.lit(name)) for c, name in (lacking or {}).items()))
    unsent = [F.array_compact(named).alias(own.UNSENT)] if lacking else []
    return net.select(own.OP, *unsent, *_selected(row, transform.select or ["*"]))


def _selected(net: "DataFrame", select: Sequence[str]) -> list["Column"]:
    """The select list over `(own.OP, row…)`; its star stands only for the row's columns.

    Expressions are evaluated only for rows that stay: a row that `where` excludes, or a deleted row that has only
    its key, must not fail an expression that was never meant for it.
    """
    from pyspark.sql import functions as F

    row = net.drop(own.OP)
    columns = []
    for text in select:
        with fitting():  # an older version let an item name another one's alias, which only rows can compute
            names = row.selectExpr(text).columns
        if text.lstrip().startswith("*"):
            columns += [quoted(name) for name in names]
        elif _is_reference(text):
            columns.append(F.expr(text))
        else:
            columns.append(F.when(F.col(own.OP) == "U", F.expr(text)).alias(names[0]))
    return columns


def _is_reference(text: str) -> bool:
    """Whether a select item is a plain column, possibly renamed: key columns always are."""
    import sqlglot
    from sqlglot import exp

    item = sqlglot.parse_one(text, dialect="spark")
    plain = item.this if isinstance(item, exp.Alias) else item
    return isinstance(plain, exp.Column) and len(plain.parts) == 1
