"""The `[upstream]` part of a config with `type = "files"`: what a user may write, with units and help."""

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backfill_cli.contracts.options import ByTable, Example, FilePath, NoSecret
from backfill_cli.errors import START_OVER, ConfigError, Hint

FileFormat = Literal["parquet", "json", "csv", "avro"]
ChangeFile = Literal["parquet", "json", "csv", "avro"]
TimeUnit = Literal["ms", "us", "ns"]
DecimalForm = Literal["precise", "string", "double"]

FILE_FORMATS: dict[str, tuple[ChangeFile, ...]] = {
    "debezium": ("json", "avro"),
    "dms": ("parquet", "csv", "avro"),
    "change-feed": ("parquet", "json", "csv", "avro"),
}
_EXTENSIONS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".avro": "avro",
}


def extension(name: str, allowed: Collection[FileFormat] = get_args(FileFormat)) -> FileFormat | None:
    """The format that a file's name says; the last known suffix decides: `a.csv.gz` is csv."""
    for suffix in reversed(PurePosixPath(name).suffixes):
        found = _EXTENSIONS.get(suffix.lower())
        if found in allowed:
            return found
    return None


class _Options(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True, serialize_by_alias=True
    )


class CsvOptions(_Options):
    """The dialect of CSV files. An unquoted empty field is NULL; a quoted one is an empty string.

    at: its path in the config. then: what follows once a file or this is corrected: a job has pinned its snapshot.
    """

    at: ClassVar[str] = "upstream.snapshot.csv"
    then: ClassVar[Hint] = "; then " + START_OVER
    header: bool = Field(default=False, description="the first line of each file names its columns")
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="one character between fields")
    quote: str = Field(default='"', min_length=1, max_length=1, description="one character around fields")
    escape: str = Field(
        default='"', min_length=1, max_length=1, description="the character that escapes a quote inside a field"
    )
    null_value: str = Field(default="", description="unquoted text that means NULL")
    multi_line: bool = Field(
        default=False, description="quoted fields may contain line ends; one task then reads a whole file"
    )

    @model_validator(mode="after")
    def _are_bytes(self) -> Self:
        for name in ("delimiter", "quote", "escape"):
            if not getattr(self, name).isascii():
                raise ValueError(f"csv.{name} must be one ASCII character, not {getattr(self, name)!r}")
        return self


class ChangesCsv(CsvOptions):
    at: ClassVar[str] = "upstream.changes.csv"
    then: ClassVar[Hint] = Hint()


class SnapshotFiles(_Options):
    """The files of a snapshot."""

    path: Annotated[str, FilePath(), Example("data/orders/snapshot")] = Field(
        min_length=1,
        description="folder (read with its subfolders) or glob; a local path or a URI that both pyarrow and Spark "
        "can open; contains {table} if there are several tables",
    )
    format: FileFormat = Field(
        description="format of the files: parquet, json (one object per line), csv, or avro (container files)"
    )
    ddl: Annotated[str | dict[str, str] | None, NoSecret(), ByTable()] = Field(
        default=None,
        alias="schema",
        description='columns of json and csv files as Spark DDL ("id BIGINT, note STRING"), or one DDL per table, '
        "by table name",
    )
    ignore: tuple[str, ...] = Field(default=(), description="columns of csv files that schema omits on purpose")
    folders: Annotated[str | dict[str, str] | None, NoSecret(), ByTable()] = Field(
        default=None,
        description='columns in the names of folders ("dt=2026-01-31/region=eu/…"), as Spark DDL '
        '("dt DATE, region STRING"), or one DDL per table, by table name',
    )
    sparse: tuple[str, ...] = Field(
        default=(),
        description="columns of schema that may be missing from all json lines; they are then NULL in all rows",
    )
    csv: CsvOptions = Field(default=CsvOptions(header=True), description="how csv files are written")

    @field_validator("csv", mode="before")
    @classmethod
    def _has_a_header(cls, given: object) -> object:
        """A snapshot's files have a header unless the option says otherwise."""
        return {"header": True, **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _needs_schema(self) -> Self:
        if not self.typed and not self.ddl:
            raise ValueError(
                f'{self.format} files do not carry column types: set schema = "<Spark DDL>", '
                'for example "id BIGINT, note STRING"'
            )
        if self.typed and self.ddl:
            raise ValueError(f"{self.format} files carry their column types: remove schema")
        return self

    @property
    def typed(self) -> bool:
        """Whether the files carry the types of their columns."""
        return self.format in ("parquet", "avro")


class SnapshotOptions(SnapshotFiles):
    """The load that the job starts from."""

    as_of: str | None = Field(
        default=None,
        description="name of the last change file finished before the load began; if left out, all are replayed",
    )
    complete_at: str | None = Field(
        default=None,
        description="name of the first change file finished after the load ended; if this and as_of are left out, "
        "the newest one when the job starts",
    )


class ChangesOptions(_Options):
    """The landing zone of change files, read in the order of the numbers in their names."""

    path: Annotated[str, FilePath(), Example("data/orders/changes")] = Field(
        min_length=1, description="folder or glob of the change files; in the same form as the snapshot's path"
    )
    format: Literal["debezium", "dms", "change-feed"] = Field(
        description="format of the changes: debezium, dms or change-feed"
    )
    file_format: ChangeFile | None = Field(
        default=None,
        description="what the files are: parquet, json, csv or avro, if the format allows more than one. "
        "Default: by file extension",
    )
    epoch: str | None = Field(
        default=None,
        description="column whose value orders commits across files and tables, dotted if nested; all rows of a "
        "table with one value are in one file, and values increase in name order; with several tables, the newest "
        "value is applied once every table has it or one has a later value; if left out, each file is one epoch",
    )
    timestamps: TimeUnit | None = Field(
        default=None,
        description="unit of numeric timestamps in debezium without a schema block: ms, us or ns",
    )
    decimals: DecimalForm | None = Field(
        default=None,
        description="encoding of decimals in debezium without a schema block: precise (base64), string or double",
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description="the tables whose changes are read in files of debezium, by the end of their names "
        '("public.orders", "public.{table}_*"; * matches anything but a dot); lines of other tables are skipped. '
        "If left out, each folder must hold changes of one table, and a line of another table is an error",
    )
    consecutive: Literal["names", "versions"] | None = Field(
        default=None,
        description="what increases by one from file to file of a table: the last number in the names, or "
        "_commit_version of a change feed; the job waits for a missing one. If left out, gaps are allowed, such "
        "as a version taken by OPTIMIZE",
    )
    accept_growth: bool = Field(
        default=False,
        description="continue when partitions are added to the topic whose records the files hold, because every "
        "key stays in the partition that it was in",
    )
    op_column: str = Field(default="Op", description="column of dms that holds I, U or D")
    time_column: str | None = Field(
        default=None, description="column of dms with the source's commit time, if any"
    )
    columns: Annotated[str | dict[str, str] | None, NoSecret(), ByTable()] = Field(
        default=None,
        description="columns that are added later in files that carry no types, as Spark DDL, or one DDL per "
        "table, by table name",
    )
    csv: ChangesCsv = Field(default=ChangesCsv(), description="how csv files are written")

    @model_validator(mode="after")
    def _format_allows(self) -> Self:
        allowed = FILE_FORMATS[self.format]
        if self.file_format is not None and self.file_format not in allowed:
            raise ValueError(
                f"{self.format} changes are read from {' or '.join(allowed)} files, not {self.file_format}"
            )
        if self.format != "debezium" and (self.timestamps or self.decimals or self.tables):
            raise ValueError(f"timestamps, decimals and tables are for debezium, not {self.format}")
        if self.consecutive == "versions" and (self.format != "change-feed" or self.epoch):
            raise ValueError('consecutive = "versions" is for a change-feed without an epoch column')
        if self.format != "dms" and self.time_column:
            raise ValueError(f"time_column is for dms, not {self.format}")
        return self

    def reads_as(self, name: str) -> FileFormat | None:
        """A change file's format, from the options or else from its name; None if neither says."""
        allowed = FILE_FORMATS[self.format]
        other: FileFormat | None = "json" if self.format == "debezium" else None
        return self.file_format or extension(name, allowed) or other


class FilesOptions(_Options):
    """Files: a snapshot, and a landing zone of change files after it."""

    type: Literal["files"] = Field(default="files", description="this connector")
    on_error: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="a row that cannot be read: fail stops the job and names it, quarantine keeps it in a "
        "quarantine table of the sink and continues",
    )
    snapshot: SnapshotOptions = Field(description="the load that the job starts from")
    changes: Annotated[ChangesOptions | None, Example()] = Field(
        default=None,
        description="where change files land; if left out, the job is caught up once the snapshot is read",
    )

    @model_validator(mode="after")
    def _names_need_changes(self) -> Self:
        if self.changes is None and (self.snapshot.as_of or self.snapshot.complete_at):
            raise ValueError("as_of and complete_at name change files: set changes, or remove both")
        if self.on_error == "quarantine" and self.changes is not None and self.changes.epoch is not None:
            raise ValueError(
                'on_error = "quarantine": a row that cannot be read has no epoch; remove changes.epoch'
            )
        return self


class SnapshotSideOptions(SnapshotFiles):
    """Files as the snapshot of an upstream whose changes come from another system."""

    type: Literal["files"] = Field(description="which connector")


def refuse_shared_paths(paths: Mapping[str, str], tables: int) -> None:
    """Each table has its own path. paths: by option. Raises ConfigError for paths without {table}."""
    faults = [
        f"{option}: '{path}' has no {{table}}, but the job has {tables} tables"
        for option, path in paths.items()
        if tables > 1 and "{table}" not in path
    ]
    if faults:
        raise ConfigError("upstream", faults, 'write it like "data/{table}/snapshot"')


def table_ddl(ddl: str | dict[str, str] | None, table: str) -> str | None:
    """The DDL given for one table, or None."""
    return ddl.get(table) if isinstance(ddl, dict) else ddl
