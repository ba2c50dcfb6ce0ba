"""What a format of records (or of a file's lines) is: how raw records become rows, as Arrow, where they are read.

A decoder plugs in by an entry point of the group `backfill.decoders`. Its instance is asked on the driver which
columns there are; what `open` returns is asked, for each window, for a function that the workers call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.model.schema import Columns
from backfill_cli.model.skipped import Skipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from backfill_cli.decode.registered import Registered


class Fault(StrEnum):
    """Faults of a record for which its place (a topic, a folder of files) has a way on of its own."""

    OTHER_TABLE = auto()
    NOT_SENT = auto()
    TRUNCATED = auto()
    ONE_OF_SEVERAL = auto()
    UNWRAPPED = auto()
    DOCUMENT = auto()
    TIME_UNIT = auto()
    DECIMAL_FORM = auto()
    SCHEMA_BLOCK = auto()
    COLUMNS = auto()
    BLOCK_COLUMNS = auto()
    NEW_COLUMN = auto()
    NO_COLUMN = auto()


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows in the order of their records; all arrays are equally long.

    columns: the table's columns, each of the Arrow type of its Spark type (decode/stored.py).
    record: INT32, the index of the record that a row is of; None: one row for each record.
    op: 'U' is the row after a change, 'D' a deleted one (at least its key is set); None: all are 'U'. 'T', where
    `Asked.ordered`: the table was emptied, all columns are NULL. 'K', of a decoder of rows: the row that has the
    record's own key is deleted, all columns are NULL.
    ms: INT64, when the source made the change, milliseconds since 1970, NULL where unknown; None: everywhere.
    error: STRING, why a record cannot be read, its columns are NULL then; None: all can be. fault: STRING, which
    `Fault` an error is, NULL for any other.
    beside: what `Decode.beside` announces. skipped: how many records changed no row of the job's tables, by kind.
    """

    columns: "dict[str, pa.Array]"
    record: "pa.Array | None" = None
    op: "pa.Array | None" = None
    ms: "pa.Array | None" = None
    error: "pa.Array | None" = None
    fault: "pa.Array | None" = None
    beside: "dict[str, pa.Array]" = field(default_factory=dict)
    skipped: Mapping[Skipped, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edges:
    """What a task tells of its changes, for those that come before and after them in their partitions.

    last: by partition, the transaction that they end in. first: the one that they begin in, of partitions where
    they are in doubt if those before end in it; None: whatever they end in.
    """

    first: Mapping[int, str | None] = field(default_factory=dict)
    last: Mapping[int, str] = field(default_factory=dict)

    def follow(self, before: Mapping[int, str]) -> bool:
        """Whether these are without doubt after changes that ended so. before: see `last`."""
        return not any(p in before and tx in (None, before[p]) for p, tx in self.first.items())


@runtime_checkable
class InOrder(Protocol):
    """A `Decode` whose `Opened.checked` compares the changes of a key with each other."""

    def edges(self, rows: "pa.Table") -> Edges | None:
        """Of some changes in which `Opened.checked` would refuse none; None if it has to look at the window.

        Called in a worker. rows: all changes of ranges of partitions, in the order of the log, all readable.
        """
        ...


class Decode(Protocol):
    """Decodes records in a worker. It is pickled: a frozen dataclass with this method.

    beside: columns that it adds to the table's, with names of ours.
    """

    @property
    def beside(self) -> Columns: ...

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        """The rows of these records. None: a record without a value; a decoder of rows makes a row of NULLs of it.

        Never raises for a record that cannot be read: `Decoded.error` says what is wrong with it, without its
        place, which the caller knows. A record can become no row, one, or two (a change of its key).
        """
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What a config says about the records of a place (`topic 'orders'`), and the table that they fill.

    name: the place's own (the topic's). key: the table's key columns; empty if each record is a row by itself.
    declared: its columns, None if no schema is given. options: those of the format, at `at` in the config.
    whole: (columns that rows may have besides the table's, columns that no row may lack); None: rows may have and
    lack any. Where it is given, a decoder of rows refuses every other row (`decode.whole`): the rows change a
    snapshot's, in which a column that is left out would become NULL.
    ordered: all records of the place have one order, so what empties the table can be applied; otherwise such a
    record cannot be read. of_keys: the records are other records' keys, and a scalar stands for the one column.
    shared: other tables of the job have records there, too; the name of this one's at its source ends with its.
    begun: the job has begun, and asks for columns that were added: what else a schema describes is left out then,
    as it would be in records of these schemas.
    source: of a table that shares the place, its full name there, once it is known. theirs: the full names of the
    job's other tables there, whose records are not skipped by the job.
    documents: an encoding other than JSON, opened; a format that knows the option `encoding` reads its documents.
    sets_aside: records that cannot be read go to a quarantine, so what contradicts others does not stop a job.
    of_several: the job has other tables, whichever places they have: the option `tables` is not for it.
    taken: names, folded (`own.fold`), of the columns that the place adds to each row.
    """

    place: str
    name: str
    table: str
    key: tuple[str, ...]
    declared: Columns | None
    options: Mapping[str, Any]
    at: str
    whole: tuple[frozenset[str], frozenset[str]] | None = None
    of_keys: bool = False
    shared: bool = False
    documents: "Registered | None" = None
    ordered: bool = False
    source: str | None = None
    begun: bool = False
    theirs: frozenset[str] = frozenset()
    sets_aside: bool = False
    of_several: bool = False
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """columns: those that are read, each with what reading it needs in its metadata. names: that records show.

    facts: what must be remembered of the samples for the job's life, as JSON. others: tables of which records were
    seen that are skipped. schemas: of a registry that were looked at, newest first: (id, the row's fields as
    decode/connect.py reads them).
    """

    columns: Columns
    names: frozenset[str] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    schemas: Sequence[tuple[int, Sequence[Mapping[str, Any]]]] = ()


class Opened(Protocol):
    """A format's reading of one place, for as long as the job's process runs."""

    def decode(self, recent: Callable[[], Sequence[bytes]]) -> Decode:
        """What reads the next window. recent: reads a few values of it."""
        ...

    def checked(self, rows: "DataFrame", decode: Decode, place: "Column") -> "DataFrame":
        """All rows of a window (`own.OP`, `own.SEQ`, columns, `Decode.beside`), without what stands beside them.

        place: names a row's record in errors. Raises, once computed, for rows that contradict each other.
        """
        ...


class Decoder(Protocol):
    """A format, by its name in the config.

    changes: whether records are changes of a table's rows, which need a key; otherwise each is a row, and for a
    table with a key the newest of a key counts, and a record without a value deletes by its own key.
    options: which of `timestamps`, `decimals`, `tables` and `encoding` it knows; it has no options of its own.
    reads_keys: if it has this attribute, of rows: whether it reads the records' keys itself (`Asked.of_keys`), of
    which `key.format` says the encoding only.
    keyed: if it has this attribute, of changes: whether a record is its key and its value in one, as
    decode/keyed.py puts them together.
    """

    changes: bool
    options: frozenset[str]

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        """The columns: those declared, or that the format or samples of the values show, which `samples` reads.

        Raises ConfigError, naming all missing options, or BadData for values that contradict each other.
        """
        ...

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Opened:
        """columns, facts: as `columns` returned them when the job began."""
        ...
