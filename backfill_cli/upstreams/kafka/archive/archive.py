"""The archive of a topic: which of its files, unchanged since the pin, hold a range of offsets, and their rows.

A split's detail has the files of its partition with their ranges, and the gaps between them, so that a restart
reads no file. Files that come later are indexed when they are needed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from backfill_cli.errors import START_OVER, BadData, Fatal, UsageError, in_config
from backfill_cli.formats import schemas
from backfill_cli.formats.listing import File, Listing, ValueInFolder, place, touched
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.schema import Columns, SparkType, field, same_type, shown
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.kafka.archive import frames, index
from backfill_cli.upstreams.kafka.archive.index import Piece, Span
from backfill_cli.upstreams.kafka.options import ArchiveOptions, KafkaOptions

_THREADS = 16
"""Files indexed at once: most of it is waiting, above all on remote file systems."""

_WIDENS = ("byte", "short", "integer", "long")


class Archive:
    """The archive of one topic. Nothing is read before `begin` or `take`."""

    def __init__(self, options: KafkaOptions, archive: ArchiveOptions, topic: str) -> None:
        self.options = archive
        self._gaps_count = not (options.compacted or options.transactional)
        self._where = place(archive.path, topic)
        self._listing = Listing(self._where)
        self._looked: dict[str, File] = {}
        self._checked: object = None
        self._columns: Columns = {}
        self._known: set[str] = set()
        self._pieces: dict[int, list[Piece]] = {}
        self._gaps: dict[int, tuple[Span, ...]] = {}

    @property
    def holds_columns(self) -> bool:
        """Whether the Parquet files hold the table's columns, instead of the records' bytes."""
        return self.options.format == "parquet" and self.options.value is None

    @property
    def place_names(self) -> tuple[str, ...]:
        return (self.options.partition, self.options.offset, self.options.timestamp)

    def begin(self) -> None:
        """All files are indexed. Raises UsageError if there are none, BadData for one that is broken."""
        self.refresh()
        if not self._looked:
            raise UsageError(
                f"no {self.options.format} files at {self._where.shown}",
                in_config(
                    "check upstream.archive.path; names that begin with '_' or '.' or end with .tmp are ignored"
                ),
            )

    def take(self, details: Mapping[int, str]) -> None:
        """What an earlier run found is known again. details: the splits', by partition."""
        for partition, detail in details.items():
            told = json.loads(detail).get("archive")
            if told is None:
                continue
            self._gaps[partition] = tuple((low, high) for low, high in told["gaps"])
            self._pieces[partition] = []
            for name, path, size, mtime_ns, low, high, rows, distinct in told["files"]:
                file = self._looked.setdefault(name, File(name, path, size, mtime_ns))
                self._pieces[partition].append(Piece(file, partition, low, high, rows, distinct))

    def detail(self, partition: int) -> str:
        """The detail of a partition's split, as JSON."""
        if partition not in self._pieces:
            return "{}"
        files = [
            (p.file.name, p.file.path, p.file.size, p.file.mtime_ns, p.low, p.high, p.rows, p.distinct)
            for p in self._pieces[partition]
        ]
        return json.dumps({"archive": {"files": files, "gaps": self._gaps[partition]}}, separators=(",", ":"))

    def spans(self) -> dict[int, Span]:
        """(first offset, next offset after the last) of each partition in the archive."""
        return {
            p: (min(x.low for x in held), max(x.high for x in held)) for p, held in self._pieces.items() if held
        }

    def gaps(self, partition: int) -> tuple[Span, ...]:
        """Offsets that no file holds, between the first and the last; none if the topic's gaps are no loss."""
        return self._gaps.get(partition, ())

    def refresh(self) -> None:
        """Files that came since are indexed. Raises Fatal for a file that is gone or has changed."""
        there = self._files()
        self.check(there)
        new = [file for name, file in there.items() if name not in self._looked]
        if not new:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            found = pool.map(lambda file: index.pieces(self._where, file, self.options, self._gaps_count), new)
            added = [piece for held in found for piece in held]
        self._looked |= {file.name: file for file in new}
        for piece in added:
            self._pieces.setdefault(piece.partition, []).append(piece)
        for partition in {piece.partition for piece in added}:
            self._gaps[partition] = self._missing(partition)

    def check(self, there: Mapping[str, File] | None = None) -> None:
        """Raises Fatal for a file that is gone or has changed since it was indexed."""
        if there is None:
            there = self._files()
            if there is self._checked:
                return
            self._checked = there
        for name, file in self._looked.items():
            now = there.get(name)
            if now is None or not now.same_as(file):
                raise _changed(file, now)

    def columns(self) -> Columns:
        """Every column of the archive's Parquet files. Raises BadData for one that has several types."""
        self._learn(self._looked.values())
        return dict(self._columns)

    def read_as(self, wanted: Columns) -> Columns:
        """The columns with the types that the files have. Raises BadData for one that would lose values."""
        if self.options.format == "json":
            return wanted
        for name, column in wanted.items():
            kept = self._columns.get(name, column)["type"]
            if self.holds_columns and not _widens(kept, column["type"]):
                raise BadData(
                    f"{self._where.shown}: column '{name}' is {shown(kept)}, but upstream.value.schema says "
                    f"{shown(column['type'])}",
                    f"declare it as {shown(kept)}",
                )
        return {name: {**c, "type": self._columns.get(name, c)["type"]} for name, c in wanted.items()}

    def frame(self, spark: SparkSession, ranges: Sequence[Range], wanted: Columns) -> DataFrame:
        """`own.READ, kafka columns, wanted…` of these ranges, each offset once; types as the files have them."""
        files, doubled = self._files_of(ranges)
        places = {
            name: field(name, "string" if name == self.options.timestamp else "long") for name in self.place_names
        }
        if self.options.format == "parquet":
            self._learn(files)
            places = {name: self._columns[name] for name in self.place_names if name in self._columns}
        rows = frames.of_files(spark, self._where, files, self.options, places, self.read_as(wanted))
        within = frames.lines_of_ranges if self.options.format == "json" else frames.of_ranges
        here = within(rows, ranges)
        return here.dropDuplicates(["kafka_partition", "kafka_offset"]) if doubled else here

    def _files(self) -> Mapping[str, File]:
        """The files that exist. Raises BadData naming the layout of Kafka Connect's sinks, if it is that."""
        try:
            return self._listing.files()
        except ValueInFolder as exc:
            if exc.connect:
                raise BadData(
                    f"{self._where.shown}: has folders partition=N, as Kafka Connect's sinks write them, "
                    "whose files do not have a record's partition and offset",
                    "let the sink write partition and offset into the records (the transform InsertField, with "
                    "partition.field and offset.field), then put the files into a folder without such folders",
                ) from exc
            raise

    def _learn(self, files: Iterable[File]) -> None:
        """The columns of these files are known: each footer is read once."""
        import pyarrow.parquet as pq

        for file in files:
            if file.name in self._known:
                continue
            with reading(file.path, "parquet"):
                here = schemas.of_footer(file.path, pq.read_metadata(file.path, filesystem=self._where.fs))
            for name, column in here.items():
                before = self._columns.setdefault(name, column)
                if not same_type(before["type"], column["type"]):
                    raise BadData(
                        f"{file.path}: column '{name}' is {shown(column['type'])}, but {shown(before['type'])} in "
                        "earlier files",
                        "a column has the same type in all files of an archive: write that file again",
                    )
            self._known.add(file.name)

    def _files_of(self, ranges: Iterable[Range]) -> tuple[list[File], bool]:
        """The files that hold part of these ranges, unchanged; whether an offset may be in them twice."""
        held: dict[str, File] = {}
        doubled = False
        for one in ranges:
            pieces = [p for p in self._pieces.get(one.partition, ()) if p.low < one.up_to and p.high > one.after]
            held |= {piece.file.name: piece.file for piece in pieces}
            doubled = doubled or index.twice(pieces)
        for file in held.values():
            now = self._listing.again(file)
            if now is None or not now.same_as(file):
                self._listing.forget()
                raise _changed(file, now)
        return list(held.values()), doubled

    def _missing(self, partition: int) -> tuple[Span, ...]:
        return index.missing(self._pieces[partition]) if self._gaps_count else ()


def _changed(file: File, now: File | None) -> Fatal:
    how = "is gone" if now is None else "was written again"
    local = file.path.startswith("/")
    back = f"restore the file{f', with its time: {touched(file.path, file.mtime_ns)}' if local else ''}"
    return Fatal(f"{file.path} {how} since the archive was pinned", f"{back}; or " + START_OVER)


def _widens(kept: SparkType, wanted: SparkType) -> bool:
    """Whether every value of `kept` is one of `wanted`."""
    if same_type(kept, wanted):
        return True
    if isinstance(kept, str) and isinstance(wanted, str) and kept in _WIDENS and wanted in _WIDENS:
        return _WIDENS.index(kept) < _WIDENS.index(wanted)
    return (kept, wanted) == ("float", "double")
