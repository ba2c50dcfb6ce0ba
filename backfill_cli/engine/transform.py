"""What becomes of a row between upstream and sink: select and where, and the net change of each key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from backfill_cli.config.sections import Transform


def rows(frame: "DataFrame", transform: "Transform") -> "DataFrame":
    """Snapshot rows as the sink has them: `where`, then `select`."""
    kept = frame if transform.where is None else frame.where(transform.where)
    return kept.selectExpr(*(transform.select or ["*"]))


def net(changes: "DataFrame", key: Sequence[str], transform: "Transform") -> "DataFrame":
    """The last change of each key, `(_op 'U'|'D', sink columns…)`: a row that `where` no longer takes is a 'D'.

    changes: as `Upstream.changes` gives them.
    """
    from pyspark.sql import functions as F

    columns = [c for c in changes.columns if c not in ("_seq", "_ms")]
    last = F.max_by(F.struct(*(F.col(_quoted(c)) for c in columns)), F.col("_seq")).alias("_last")
    keys = [F.col(_quoted(c)).alias(f"_key_{i}") for i, c in enumerate(key)]
    latest = changes.groupBy(*keys).agg(last).select("_last.*")
    if transform.where is not None:
        stays = f"_op = 'U' AND coalesce(({transform.where}), false)"
        latest = latest.withColumn("_op", F.expr(f"CASE WHEN {stays} THEN 'U' ELSE 'D' END"))
    if transform.select is None:
        return latest
    return latest.selectExpr("_op", *_without_op(transform.select, latest.columns))


def _without_op(select: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The select list, its star standing for the row's own columns alone."""
    row = [_quoted(c) for c in columns if c != "_op"]
    return [name for text in select for name in (row if text.strip() == "*" else [text])]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
