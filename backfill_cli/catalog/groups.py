"""The progress of groups of splits, summed in the database: for people, who cannot read 100,000 splits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


ALMOST = 0.999
"""The largest share of a group that is not read whole: an estimate of its rows can prove too low."""


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Some splits of one table, adjacent in the pin.

    label: the table, or which of its splits. splits_read: how many are consumed (partitions: whose history is).
    rows_total: None if not known before reading. share: 0 to 1, by rows (offsets) if known, else by bytes.
    """

    label: str
    splits: int
    splits_read: int
    rows_read: int
    rows_total: int | None
    share: float


_GROUPS = """
    WITH pieces AS (
        SELECT s.table_name, s.ordinal, s.rows_total, s.size_bytes, coalesce(p.rows_read, 0) AS rows_read,
               coalesce(p.status IN ('consumed', 'awaiting live', 'finished'), s.rows_total = 0, false)
                   AS consumed,
               CASE WHEN consumed THEN 1.0
                    ELSE coalesce(try_cast(p."cursor" AS BIGINT) - s.first_offset, p.rows_read, 0)
                         / greatest(coalesce(s.rows_total, 1), 1)
               END AS share
        FROM splits s LEFT JOIN split_progress p
          ON p.job = s.job AND p.table_name = s.table_name AND p.split_id = s.split_id
        WHERE s.job = $job
    ), placed AS (
        SELECT *, row_number() OVER (PARTITION BY table_name ORDER BY ordinal) AS place,
               CASE WHEN (SELECT count(DISTINCT table_name) FROM pieces) > 1 THEN 1
                    ELSE ntile($groups) OVER (PARTITION BY table_name ORDER BY ordinal) END AS part
        FROM pieces
    )
    SELECT table_name, min(place), max(place), count(*), count_if(consumed), sum(rows_read)::BIGINT,
           CASE WHEN count(rows_total) = count(*) THEN sum(rows_total)::BIGINT END,
           coalesce(CASE WHEN count(rows_total) = count(*)
                         THEN sum(share * rows_total) / nullif(sum(rows_total), 0) END,
                    sum(share * size_bytes) / nullif(sum(size_bytes), 0), avg(share)),
           (SELECT count(DISTINCT table_name) FROM pieces)
    FROM placed GROUP BY table_name, part ORDER BY min(ordinal)
"""


def split_groups(db: "DuckDBPyConnection", job: str, at_most: int) -> tuple[SplitGroup, ...]:
    """The tables of a job, or the files of its only table in at most `at_most` groups, in the pin's order."""
    found = db.execute(_GROUPS, {"job": job, "groups": at_most}).fetchall()
    return tuple(_group(*row) for row in found)


def _group(
    table: str,
    first: int,
    last: int,
    splits: int,
    read: int,
    rows: int,
    total: int | None,
    share: float,
    tables: int,
) -> SplitGroup:
    numbers = f"split {first}" if first == last else f"splits {first}–{last}"
    return SplitGroup(
        table if tables > 1 else numbers,
        splits,
        read,
        rows,
        total,
        max(0.0, min(1.0 if read == splits else ALMOST, float(share))),
    )
