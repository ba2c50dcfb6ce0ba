"""The `[upstream]` part of a config with `type = "files"`: what a user may write, with units and help."""

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backfill_cli.contracts.example import Example
from backfill_cli.contracts.secrets import NoSecret
from backfill_cli.errors import ConfigError

SnapshotFormat = Literal["parquet", "json", "csv"]
ChangeFormat = Literal["debezium", "dms", "change-feed"]
FileFormat = Literal["parquet", "json", "csv"]
TimeUnit = Literal["ms", "us", "ns"]
DecimalForm = Literal["precise", "string", "double"]

FILE_FORMATS: dict[str, tuple[FileFormat, ...]] = {
    "debezium": ("json",),
    "dms": ("parquet", "csv"),
    "change-feed": ("parquet", "json", "csv"),
}
_EXTENSIONS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}


def extension(name: str, allowed: Collection[FileFormat] = ("parquet", "json", "csv")) -> FileFormat | None:
    """What a file is by its name, the last suffix that tells first: `a.csv.gz` is csv."""
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
    """How CSV files are written. An empty field without quotes is NULL, one with quotes an empty string."""

    header: bool = Field(default=False, description="the first line of each file names its columns")
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="one character between fields")
    quote: str = Field(default='"', min_length=1, max_length=1, description="one character around fields")
    escape: str = Field(
        default='"', min_length=1, max_length=1, description="what stands before a quote inside a field"
    )
    null_value: str = Field(default="", description="the text of NULL, without quotes")
    multi_line: bool = Field(
        default=False, description="quoted fields may hold line ends; one task then reads a file"
    )

    @model_validator(mode="after")
    def _are_bytes(self) -> Self:
        for name in ("delimiter", "quote", "escape"):
            if not getattr(self, name).isascii():
                raise ValueError(f"csv.{name} is one ASCII character, not {getattr(self, name)!r}")
        return self


class SnapshotFiles(_Options):
    """The files of a snapshot."""

    path: Annotated[str, Example("data/orders/snapshot")] = Field(
        min_length=1,
        description="folder (read with its subfolders) or glob; a local path or a URI that pyarrow and Spark both "
        "reach; holds {table} when there are several tables",
    )
    format: SnapshotFormat = Field(description="what the files are: parquet, json (one object per line) or csv")
    ddl: Annotated[str | dict[str, str] | None, NoSecret()] = Field(
        default=None,
        alias="schema",
        description='columns of json and csv files as Spark DDL ("id BIGINT, note STRING"), or one DDL a table, '
        "by its name",
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="columns that csv files have, and that schema leaves out on purpose"
    )
    sparse: tuple[str, ...] = Field(
        default=(),
        description="columns of schema that lines of json may leave out everywhere: NULL in all rows then",
    )
    csv: CsvOptions = Field(default=CsvOptions(header=True), description="how csv files are written")

    @field_validator("csv", mode="before")
    @classmethod
    def _has_a_header(cls, given: object) -> object:
        """A snapshot's files have a header unless the option says otherwise."""
        return {"header": True, **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _needs_schema(self) -> Self:
        if self.format != "parquet" and not self.ddl:
            raise ValueError(
                f'{self.format} files do not say their types: give schema = "<Spark DDL>", '
                'for example "id BIGINT, note STRING"'
            )
        if self.format == "parquet" and self.ddl:
            raise ValueError("parquet files say their types themselves: leave schema out")
        return self


class SnapshotOptions(SnapshotFiles):
    """The load that the job starts from."""

    as_of: str | None = Field(
        default=None,
        description="name of the last change file finished before the load began; left out: replay all",
    )
    complete_at: str | None = Field(
        default=None,
        description="name of the first change file finished after the load ended; left out without as_of: the "
        "newest one at the start of the job",
    )


class ChangesOptions(_Options):
    """The landing zone of change files, read in name order."""

    path: Annotated[str, Example("data/orders/changes")] = Field(
        min_length=1, description="as for the snapshot's path"
    )
    format: ChangeFormat = Field(description="what the changes look like: debezium, dms or change-feed")
    file_format: FileFormat | None = Field(
        default=None,
        description="parquet, json or csv, where the format allows several; default: by the files' extension",
    )
    epoch: str | None = Field(
        default=None,
        description="column (dots for nested ones) whose value orders commits across files and tables: whole "
        "values in a file, never decreasing along the names; left out: a file is an epoch",
    )
    timestamps: TimeUnit | None = Field(
        default=None,
        description="unit of timestamps that are numbers in debezium without a schema block: ms, us or ns",
    )
    decimals: DecimalForm | None = Field(
        default=None,
        description="form of decimals in debezium without a schema block: precise (base64), string or double",
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description='debezium: the tables whose changes are read, by the end of their names ("public.orders", '
        '"public.{table}_*"; * stands for anything but a dot), lines of others are left out; without it each '
        "folder holds changes of one table, and a line of another one is an error",
    )
    consecutive: Literal["names", "versions"] | None = Field(
        default=None,
        description="what counts up by one from file to file of a table: the last number in their names, or "
        "_commit_version of a change feed; the job waits for a missing one. Left out: numbers may be missing, as "
        "where OPTIMIZE takes a version",
    )
    op_column: str = Field(default="Op", description="dms: the column that says I, U or D")
    time_column: str | None = Field(
        default=None, description="dms: the column of the source's commit time, if any"
    )
    columns: Annotated[str | dict[str, str] | None, NoSecret()] = Field(
        default=None,
        description="types, as Spark DDL, of columns that come later and whose files do not say their types; or "
        "one DDL a table by its name",
    )
    csv: CsvOptions = Field(default=CsvOptions(), description="how csv files are written")

    @model_validator(mode="after")
    def _format_allows(self) -> Self:
        allowed = FILE_FORMATS[self.format]
        if self.file_format is not None and self.file_format not in allowed:
            raise ValueError(f"{self.format} is read from {' or '.join(allowed)}, not {self.file_format}")
        if self.format != "debezium" and (self.timestamps or self.decimals or self.tables):
            raise ValueError(f"timestamps, decimals and tables are for debezium, not {self.format}")
        if self.consecutive == "versions" and (self.format != "change-feed" or self.epoch):
            raise ValueError('consecutive = "versions" is for a change-feed without an epoch column')
        if self.format != "dms" and self.time_column:
            raise ValueError(f"time_column is for dms, not {self.format}")
        return self

    def reads_as(self, name: str) -> FileFormat | None:
        """What a change file is, by the options, else by its name; None when neither tells."""
        allowed = FILE_FORMATS[self.format]
        if self.file_format is not None or len(allowed) == 1:
            return self.file_format or allowed[0]
        return extension(name, allowed)


class FilesOptions(_Options):
    """Files: a snapshot, and a landing zone of change files after it."""

    type: Literal["files"] = Field(default="files", description="this connector")
    snapshot: SnapshotOptions = Field(description="the load that the job starts from")
    changes: Annotated[ChangesOptions | None, Example()] = Field(
        default=None,
        description="where change files land; left out: the job is caught up once the snapshot is read",
    )

    @model_validator(mode="after")
    def _names_need_changes(self) -> Self:
        if self.changes is None and (self.snapshot.as_of or self.snapshot.complete_at):
            raise ValueError("as_of and complete_at name change files: give changes, or leave them out")
        return self


class SnapshotSideOptions(SnapshotFiles):
    """Files as the snapshot of an upstream whose changes come from another system."""

    type: Literal["files"] = Field(description="which connector")


def refuse_shared_paths(paths: Mapping[str, str], tables: int) -> None:
    """Each table has a place of its own. paths: by option. Raises ConfigError for those without {table}."""
    faults = [
        f"{option}: '{path}' has no {{table}}, and the job has {tables} tables"
        for option, path in paths.items()
        if tables > 1 and "{table}" not in path
    ]
    if faults:
        raise ConfigError("upstream", faults, 'write it like "data/{table}/snapshot"')


def table_ddl(ddl: str | dict[str, str] | None, table: str) -> str | None:
    """The DDL given for one table, None without one."""
    return ddl.get(table) if isinstance(ddl, dict) else ddl
