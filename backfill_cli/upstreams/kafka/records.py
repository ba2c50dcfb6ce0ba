"""Where the records of a range come from: up to its end the archive; above that, and in its gaps, the log."""

from collections.abc import Callable, Mapping, Sequence

from backfill_cli.contracts import own
from backfill_cli.formats.frames import struct_type
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.ranges import Range, cut
from backfill_cli.model.schema import Columns, columns_of, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.archive.index import without
from backfill_cli.upstreams.kafka.log import reader, spark_source
from backfill_cli.upstreams.kafka.options import TopicOptions
from backfill_cli.upstreams.kafka.reading import PLACE, Reading, of_archived_rows


class Records:
    """Ranges of offsets as frames, whether the archive or the log holds them."""

    def __init__(self, options: TopicOptions, topic: str, connection: Connection, archive: Archive | None) -> None:
        self._options, self._topic, self._connection, self.archive = options, topic, connection, archive

    def of_log(self, ranges: Sequence[Range], oldest: Callable[[], Mapping[int, int]]) -> Sequence[Range] | None:
        """What the log delivers of these ranges; None if the archive delivers some of them."""
        archived, logged = self._parts(ranges, oldest)
        return None if archived else logged

    def decoded(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        oldest: Callable[[], Mapping[int, int]],
        reading: Reading,
    ) -> DataFrame:
        """The rows of all ranges as one frame, columns `reading.columns`. oldest: asks where the log begins."""
        archived, logged = self._parts(ranges, oldest)
        archive = self.archive
        if archive is None or not archived:
            return self._of_log(spark, logged, reading)
        if archive.options.value is not None:
            rows = of_records(_as_records(spark, archive, archived), reading)
        else:
            columns = columns_of(reading.schema)
            typed = _typed(archive.frame(spark, archived, columns), columns)
            rows = of_archived_rows(typed, columns, reading.key)
        return self._of_log(spark, logged, reading).unionByName(rows, True) if logged else rows

    def _parts(
        self, ranges: Sequence[Range], oldest: Callable[[], Mapping[int, int]]
    ) -> tuple[Sequence[Range], Sequence[Range]]:
        """(what the archive delivers of these ranges, what the log delivers)."""
        if self.archive is None:
            return [], ranges
        spans = self.archive.spans()
        beyond = [one for one in ranges if one.up_to > spans.get(one.partition, (0, 0))[1]]
        begins = oldest() if beyond else {}
        if any(
            begins.get(one.partition, 0) > max(one.after, spans.get(one.partition, (0, 0))[1]) for one in beyond
        ):
            # what the log has lost since then is in newer files, or nowhere
            self.archive.refresh()
            spans = self.archive.spans()
        archived, logged = [], []
        for one in ranges:
            begin, end = spans.get(one.partition, (0, 0))
            held, lost = without((max(one.after, begin), min(one.up_to, end)), self.archive.gaps(one.partition))
            above = (max(one.after, end), one.up_to)
            archived += [Range(one.read, one.partition, *span) for span in held if span[0] < span[1]]
            logged += [Range(one.read, one.partition, *span) for span in (*lost, above) if span[0] < span[1]]
        return archived, logged

    def _of_log(self, spark: SparkSession, ranges: Sequence[Range], reading: Reading) -> DataFrame:
        cores = arrow_tasks.cores(spark)
        there = [r for r in ranges if r.after < r.up_to]
        if self._options.reader == "spark" and there:
            return of_records(spark_source.frame(spark, self._options, self._topic, there, cores), reading)
        parts = cut(there, cores)
        return reader.tasks(self._connection, self._topic, parts, reading, cores).frame(spark)


def of_records(records: DataFrame, reading: Reading) -> DataFrame:
    """The rows of a frame of records (RECORDS), decoded in workers, which need this package."""
    return arrow_tasks.mapped(records, reading.of_records, reading.spark_schema)


def _as_records(spark: SparkSession, archive: Archive, ranges: Sequence[Range]) -> DataFrame:
    """Records of an archive that keeps their bytes, columns RECORDS."""
    mine = archive.options
    columns = {name: field(name, "binary") for name in (mine.value, mine.key) if name is not None}
    rows = archive.frame(spark, ranges, columns)
    key = F.lit(None) if mine.key is None else quoted(mine.key)
    assert mine.value is not None
    return rows.select(
        own.READ,
        *PLACE,
        key.cast("binary").alias(own.KEY),
        quoted(mine.value).cast("binary").alias(own.VALUE),
    )


def _typed(rows: DataFrame, columns: Columns) -> DataFrame:
    """The columns with the table's types, which hold every value of the files' types."""
    types = {f.name: f.dataType for f in struct_type(columns)}
    return rows.select(
        own.READ,
        *PLACE,
        *(quoted(name).cast(types[name]).alias(name, metadata=c["metadata"]) for name, c in columns.items()),
    )
