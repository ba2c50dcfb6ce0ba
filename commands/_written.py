"""The config of a job between two places: written once, never over another one."""

import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfill_cli.catalog.places import DEFAULT_CONFIG, home
from backfill_cli.errors import BackfillError, Command, Hint, UsageError, command
from backfill_cli.view.console import say

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config.draft import Asked, Draft

DATA = "Data"

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Where the rows are: a file, folder or glob; kafka://HOST:PORT/TOPIC; postgresql://HOST/DATABASE; "
        "the folder of a lake's table. TYPE:PLACE says which of these it is.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PLACE",
        help="Where the rows go: a DuckDB file; postgresql://HOST/DATABASE; kafka://HOST:PORT[/TOPIC]; "
        "delta:FOLDER; iceberg:FOLDER.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
ChangesOption = Annotated[
    str | None,
    typer.Option(
        "--changes",
        metavar="PLACE",
        help="Where changes of these rows are.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME",
        help="A table there. Can be repeated.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="COLUMNS",
        help="What identifies a row, if the data does not show it: id, or a,b.",
        rich_help_panel=DATA,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The job's name. Default: that of the table.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]


def asked_for(
    source: str | None,
    changes: str | None,
    to: str | None,
    table: list[str] | None,
    key: str | None,
    name: str | None,
    upstream: str = "files",
    sink: str = "duckdb",
) -> "Asked":
    """What was typed. Raises UsageError for an empty key."""
    from backfill_cli.config.draft import Asked

    columns = tuple(column.strip() for column in (key or "").split(",") if column.strip())
    if key is not None and not columns:
        raise UsageError(f"--key {key!r} names no column", "--key id")
    return Asked(source, changes, to, upstream, sink, tuple(table or ()), columns, name or "")


@dataclass(frozen=True, slots=True)
class Written:
    """What a command wrote before its job was created.

    file: None if it wrote none. words: what writes it again, after `start`. init: the command that only writes it.
    """

    said: Sequence[str] = ()
    file: Path | None = None
    words: tuple[str, ...] = ()
    init: Hint = field(default=Hint())

    def typed(self, hint: Hint) -> Hint:
        """The hint of a refusal, which removes the file: a start of the file is the start that writes it."""
        if self.file is None:
            return hint
        told = hint.with_commands(self._typed)
        if hint.config or any(one.names_file for one in told.commands):
            return told + "; to have a config to change: " + self.init
        return told

    def _typed(self, one: Command) -> Command:
        verb, option, file, *_ = *one.words, "", "", ""
        known = self.file is not None and os.path.abspath(file) == os.path.abspath(self.file)
        if (verb, option) != ("start", "--config") or not (known or one.lacks_file):
            return one
        return Command((verb, *self.words, *one.words[3:]))

    @contextmanager
    def removed_if_refused(self, catalog: "Catalog") -> Iterator[None]:
        """A refusal inside the block removes the file again, unless a job has it."""
        try:
            yield
        except BackfillError as error:
            if self._remove(catalog):
                error.hint = self.typed(error.hint)
            raise
        except typer.Exit as ended:
            if ended.exit_code:
                self._remove(catalog)
            raise

    def _remove(self, catalog: "Catalog") -> bool:
        """Whether it was removed."""
        with suppress(BackfillError, OSError):  # a catalog that cannot be read may have the job
            if self.file is not None and not _has(catalog, self.file):
                self.file.unlink()
                say(f"removed {self.file}: no job was created")
                return True
        return False


def _has(catalog: "Catalog", file: Path) -> bool:
    """Whether a job was started from the file."""
    at = os.path.abspath(file)
    return any(os.path.abspath(row.config_file) == at for row in catalog.listed() if row.config_file)


def config_between(asked: "Asked", file: Path) -> Written:
    """The config of this job is in the file; one that was written for the same places is left as it is now.

    Raises UsageError for a file written for something else, and, before anything
    is written, for what cannot be told from the data.
    """
    from backfill_cli.config.draft import drafted, words_of
    from backfill_cli.config.template import begin, template
    from backfill_cli.folders import folder_of

    folder = folder_of(file)
    words = words_of(asked, folder)
    if not os.path.lexists(file):
        draft = drafted(asked, folder)
        _refuse_gaps(draft, asked, file)
        with suppress(FileExistsError):
            create(file, template(draft))
            named = () if file == Path(DEFAULT_CONFIG) else ("--config", str(file))
            return Written(
                [*draft.said, f"wrote {file}"], file, (*named, *words_of(asked, Path.cwd())), by_init(asked, file)
            )
    try:
        written = file.read_text("utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        written = ""
    if written != begin(words):
        other = shlex.quote(f"{asked.name or 'other'}.toml")
        here = shlex.join(words_of(asked, Path.cwd()))
        raise UsageError(
            f"{file} already exists, and was not written for these places",
            "to run it as it is: "
            + command(f"start --config {shlex.quote(str(file))}")
            + "; or write another one: "
            + command(f"start --config {other} {here}"),
        )
    return Written([f"{file} was written for these places before, and is used as it is now"])


def by_init(asked: "Asked", file: Path) -> Hint:
    """The command that writes the file, typed here, and no more."""
    from backfill_cli.config.draft import words_of

    named = "" if file == Path(DEFAULT_CONFIG) else f"{shlex.quote(str(file))} "
    return command(f"init {named}{shlex.join(words_of(asked, Path.cwd()))}")


def _refuse_gaps(draft: "Draft", asked: "Asked", file: Path) -> None:
    if not draft.gaps:
        return
    only_key = all(gap.is_key for gap in draft.gaps)
    filled = by_init(asked, file) + ", fill them in, and start it"
    key = shlex.quote(draft.gaps[0].example or "id")
    way = Hint.of(f"name its columns: --key {key}") if only_key else filled
    raise UsageError("\n".join(f"{gap.what} cannot be told from the data: {gap.why}" for gap in draft.gaps), way)


def create(file: Path, text: str) -> None:
    """The file has this text, whole at once. Raises FileExistsError; UsageError if it cannot be written."""
    if str(file).isprintable():  # otherwise it could end the comment
        text = text.replace("--config job.toml", f"--config {shlex.quote(str(file))}")
    made = file.parent / f".backfill-{os.urandom(6).hex()}.tmp"
    try:
        try:
            _write(made, text)
            try:
                os.link(made, file)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                _write(file, text)
        finally:
            made.unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        free = _free(but=file.parent)
        raise UsageError(
            f"{file}: {error.strerror}", f"name a file in another folder{f', such as {free}' if free else ''}"
        ) from None


def _write(file: Path, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)


def another() -> Hint:
    """A file that can be written: here, else at home or among temporary files."""
    free = _free()
    return "name another file" + (": " + command(f"init {shlex.quote(free)}") if free else Hint())


def _free(but: Path | None = None) -> str:
    """A file that is not there, in a folder that can be written; empty if none is found. but: not here."""
    folders = [
        folder
        for folder in ("", str(home()), tempfile.gettempdir())
        if os.access(folder or ".", os.W_OK | os.X_OK)
        and (but is None or os.path.realpath(folder) != os.path.realpath(but))
    ]
    files = (
        os.path.join(folder, name) for folder in folders for name in ("job.toml", "other.toml", "another.toml")
    )
    return next((file for file in files if not os.path.lexists(file)), "")
