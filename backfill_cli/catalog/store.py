"""The catalog's file: opened under a file lock for one transaction, then closed; upgraded first if necessary.

DuckDB lets one process at a time open a file. The file lock `<catalog>.lock` is the queue in front of it, so that
`status --watch`, commands and runners wait for each other for milliseconds and never fail.
"""

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from backfill_cli.catalog.files import (
    make_folder,
    make_private,
    our_errors,
    refuse_unsafe,
    set_log_aside,
    sync_folder,
)
from backfill_cli.catalog.lease import is_locked
from backfill_cli.catalog.places import DEFAULT_CATALOG, DEFAULT_CONFIG, around, beside, nearest_spelling
from backfill_cli.duckdb_instance import DuckDBPyConnection, Instance
from backfill_cli.errors import Hint, NoSuchJob, Transient, UsageError, command, joined, shell
from backfill_cli.model.units import spell_duration
from backfill_cli.unwinding import whole

# 30 s: a thousand times the longest open, write and close seen.
WAIT_S = 30.0
POLL_S = 0.005

_CONFIG = {"threads": "1", "memory_limit": "512MB"}  # they start faster


def shipped_migrations() -> tuple[str, ...]:
    """The SQL of every version, in order: the n-th one upgrades version n - 1 to n."""
    folder = files("backfill_cli.catalog").joinpath("migrations")
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(script.read_text(encoding="utf-8") for script in scripts)


class Store:
    """One catalog file. Every use opens it, runs one transaction and closes it.

    wait_s: how long to wait for other processes. migrations: those that this program knows.
    """

    def __init__(self, path: Path, wait_s: float = WAIT_S, migrations: Sequence[str] | None = None) -> None:
        self.path = Path(os.path.abspath(path))
        self._wait_s = wait_s
        self._migrations = migrations
        self._new = self.path.with_name(f"{self.path.name}.new")
        self._instance = Instance((self.path, self._new), _CONFIG)

    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def create(self) -> None:
        """The catalog exists, empty if it is new. A crash meanwhile leaves nothing that looks like one."""
        if self.exists():
            return
        self.make_folder()
        with self.locked("create"):
            if not self.exists():
                self._create()

    def make_folder(self) -> tuple[Path, ...]:
        """The folder exists and is safe, so that a lock can be held before there is a catalog.

        Returns the folders that were created for it, outermost first.
        """
        with our_errors(self.path):
            made = make_folder(self.path)
            refuse_unsafe(self.path)
            return made

    @contextmanager
    def reading(self) -> Iterator[DuckDBPyConnection]:
        """A read-only connection. Raises NoSuchJob if there is no catalog yet."""
        with self._opened(read_only=True, act="read") as db:
            yield db

    @contextmanager
    def looking(self) -> Iterator[DuckDBPyConnection]:
        """As `reading`, but the file is neither upgraded nor made private.

        Raises UsageError for a file of another version.
        """
        with self.locked("look"):
            refuse_unsafe(self.path)
            with self._attached(self.path, read_only=True) as db:
                version, known = self._version(db), len(self._scripts())
                if version != known:
                    raise UsageError(
                        f"catalog {self.path} has version {version}, this backfill needs version {known}",
                        shell("pip install --upgrade backfill-cli")
                        if version > known
                        else command("status") + ", which upgrades it, and keeps a copy",
                    )
                yield db

    @contextmanager
    def writing(self, create: bool = False) -> Iterator[DuckDBPyConnection]:
        """One transaction: committed at the end; an exception leaves the file as it was.

        create: an empty catalog is made if there is none, and no other process can remove it before the commit.
        """
        with self._opened(read_only=False, act="write", create=create) as db:
            db.begin()
            yield db
            db.commit()

    @contextmanager
    def locked(self, act: str) -> Iterator[None]:
        """Hold the file lock. act: its purpose, shown to a process that waits too long.

        Two locks make it fair: a waiting process holds the first one, so that another process that returns again
        and again cannot overtake it.
        """
        with whole(), our_errors(self.path):
            deadline = time.monotonic() + self._wait_s
            queue, door = self._lock("queue"), self._lock("lock")
            self._acquire(queue, deadline)
            try:
                self._acquire(door, deadline)
            finally:
                queue.release()
            try:
                with suppress(OSError):  # only a note for others; readers must work on a full disk
                    Path(door.lock_file).write_text(f"{act}, pid {os.getpid()}")
                yield
            finally:
                door.release()

    def remove(self, unused: Callable[[DuckDBPyConnection], bool]) -> None:
        """The file is gone, if nothing in it is of use."""
        with self.locked("remove"):
            if not self.exists():
                return
            with self._attached(self.path) as db:
                if not unused(db):
                    return
            for file in (self.path, Path(f"{self.path}.wal"), Path(f"{self.path}.wake")):
                file.unlink(missing_ok=True)

    def remove_locks(self) -> None:
        """The files of both locks are gone, if there is no catalog. A process that waits for one notices that its
        file was unlinked, and opens the new one."""
        deadline = time.monotonic() + self._wait_s
        queue, door = self._lock("queue"), self._lock("lock")
        with our_errors(self.path):
            self._acquire(queue, deadline)
            try:
                self._acquire(door, deadline)
                if not self.path.exists():
                    Path(door.lock_file).unlink(missing_ok=True)
                    Path(queue.lock_file).unlink(missing_ok=True)
            finally:
                door.release()
                queue.release()

    def _lock(self, suffix: str) -> BaseFileLock:
        return FileLock(f"{self.path}.{suffix}", mode=0o600, poll_interval=POLL_S)

    def _acquire(self, lock: BaseFileLock, deadline: float) -> None:
        try:
            lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        except Timeout as exc:
            holder = Path(f"{self.path}.lock").read_text(errors="replace") or "unknown"
            raise Transient(
                f"catalog {self.path} was busy for {spell_duration(self._wait_s)}; last used by: {holder}",
                "find the process that holds it: " + shell(f"fuser -v {shlex.quote(f'{self.path}.lock')}"),
            ) from exc

    @contextmanager
    def _opened(self, read_only: bool, act: str, create: bool = False) -> Iterator[DuckDBPyConnection]:
        if create:
            self.make_folder()
        elif not self.exists():
            raise self._missing(left_behind(self))
        with self.locked(act):
            if create and not self.exists():
                self._create()
            if not self.exists():  # it was moved away while this waited
                raise self._missing(dict.fromkeys(left_at(self.path), False))
            refuse_unsafe(self.path)
            make_private(self.path)
            with ExitStack() as opened:
                db = opened.enter_context(self._attached(self.path, read_only))
                version = self._version(db)
                if version != len(self._scripts()):
                    opened.close()
                    self._upgrade(version)
                    db = opened.enter_context(self._attached(self.path, read_only))
                yield db

    def _missing(self, left: dict[str, bool]) -> NoSuchJob:
        return NoSuchJob(*told_of(self.path, left, command("start --config job.toml")))

    @contextmanager
    def _attached(self, path: Path, read_only: bool = False) -> Iterator[DuckDBPyConnection]:
        """The open file; waits while a program that does not use our lock has it open."""
        import duckdb

        from backfill_cli.duckdb_errors import ErrorKind, classify

        deadline = time.monotonic() + self._wait_s
        with ExitStack() as opened:
            while True:
                try:
                    db = opened.enter_context(self._instance.attached(path, read_only))
                    break
                except duckdb.IOException as exc:
                    if classify(exc) is not ErrorKind.HELD or time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_S)
            yield db

    def _scripts(self) -> Sequence[str]:
        if self._migrations is None:
            self._migrations = shipped_migrations()
        return self._migrations

    def _version(self, db: DuckDBPyConnection) -> int:
        import duckdb

        try:
            row = db.execute("SELECT max(version) FROM catalog_version").fetchone()
        except duckdb.CatalogException as exc:
            raise UsageError(
                f"{self.path} is a DuckDB database, but not a backfill catalog",
                "name another file with --catalog",
            ) from exc
        assert row is not None
        return int(row[0])

    def _create(self) -> None:
        for rest in (self._new, Path(f"{self._new}.wal")):
            rest.unlink(missing_ok=True)
        self._migrate(self._new, 0)
        make_private(self._new)
        set_log_aside(self.path)
        os.replace(self._new, self.path)
        sync_folder(self.path.parent)

    def _upgrade(self, version: int) -> None:
        """Upgrade an older file to this version; a copy of the old one is kept beside it.

        Raises UsageError for a newer one.
        """
        if version > len(self._scripts()):
            raise UsageError(
                f"catalog {self.path} has version {version}, this backfill supports versions up to "
                f"{len(self._scripts())}",
                shell("pip install --upgrade backfill-cli") + ", or name another file with --catalog",
            )
        self._refuse_while_run(version)
        with self._attached(self.path) as db:
            db.execute("CHECKPOINT")
        kept = self.path.with_name(f"{self.path.name}.v{version}")
        shutil.copyfile(self.path, f"{kept}.tmp")
        make_private(Path(f"{kept}.tmp"))
        os.replace(f"{kept}.tmp", kept)
        sync_folder(self.path.parent)
        self._migrate(self.path, version)

    def _refuse_while_run(self, version: int) -> None:
        """Raise UsageError while an older runner is live: it could not use the upgraded file."""
        for file in self.path.parent.glob(f"{self.path.name}.*.runner"):
            try:
                with FileLock(file, timeout=0):
                    continue
            except Timeout as exc:
                job = file.name.removeprefix(f"{self.path.name}.").removesuffix(".runner")
                raise UsageError(
                    f"catalog {self.path} has the older version {version}, and a runner of that version "
                    f"still runs job {job!r}",
                    f"stop job {job!r} with the older backfill, then try again",
                ) from exc

    def _migrate(self, path: Path, version: int) -> None:
        """Run the missing migrations, then checkpoint: replaying DDL from the log has failed in the past."""
        with self._attached(path) as db:
            for number, script in enumerate(self._scripts()[version:], start=version + 1):
                db.begin()
                db.execute(script)
                db.execute("INSERT INTO catalog_version VALUES (?, ?)", [number, int(time.time() * 1000)])
                db.commit()
            db.execute("CHECKPOINT")


LOST = "if the catalog was lost, rebuild it from the sink: " + command("resume --from-sink job.toml")

_SUFFIX = ".runner"


def told_of(catalog: Path, left: Mapping[str, bool], otherwise: Hint, empty: str = "") -> tuple[str, Hint]:
    """What is known where the catalog's file is missing, and what to type.

    otherwise: what to type if no job ran with it and nothing is nearby, for who is in the wrong folder; empty: the
    words for that. left: see `left_behind`. A job that is started in a new folder has a runner before there is a
    catalog; nothing tells it apart from the last job of a catalog that was moved away while its runner was live.
    """
    said = f"there is no catalog at {catalog}"
    if not left:
        return _nearby(catalog, said) or (empty or said, otherwise)
    if all(left.values()):
        jobs = ", ".join(f"job {name!r} has a runner" for name in left)
        return (
            f"{said}, but {jobs}: it is just starting, or runs with a catalog that was here before",
            command("status") + ", again in half a minute; if the catalog was moved away, move it back; " + LOST,
        )
    ran = ", ".join(f"{name} (it still has a runner)" if live else name for name, live in left.items())
    return f"{said}, but these jobs ran with it: {ran}", "move it back; " + LOST


def _nearby(catalog: Path, said: str) -> tuple[str, Hint] | None:
    """Catalogs, else configs, in the folders around; None if there are none, or somebody chose the place.

    A config of this folder comes first: its job was not started here, whatever else there is.
    """
    folder = catalog.parent.parent
    if catalog != beside(folder):
        return None
    has_config = os.path.lexists(folder / DEFAULT_CONFIG)
    if others := around(folder, DEFAULT_CATALOG):
        folders = ", ".join(nearest_spelling(one.parent.parent) for one in others)
        looks = [command(f"status --catalog {shlex.quote(nearest_spelling(one))}") for one in others]
        if has_config:
            looks.insert(0, command(f"start --config {shlex.quote(nearest_spelling(folder / DEFAULT_CONFIG))}"))
        return f"{said}; nearby there is one in {folders}", joined(looks)
    if not has_config and (configs := around(folder, DEFAULT_CONFIG)):
        starts = (command(f"start --config {shlex.quote(nearest_spelling(one))}") for one in configs)
        return f"{said}; nearby there is {', '.join(map(nearest_spelling, configs))}", joined(starts)
    return None


def left_at(catalog: Path) -> list[str]:
    """The jobs that ran with a catalog on this machine, by their lock files; none while the catalog exists."""
    if catalog.exists():
        return []
    before = f"{catalog.name}."
    files = sorted(file.name for file in catalog.parent.glob(f"*{_SUFFIX}") if file.name.startswith(before))
    names = [file.removeprefix(before).removesuffix(_SUFFIX) for file in files]
    # A dot is in no job's name: a file that has one belongs to a catalog whose name is longer.
    return [name for name in names if "." not in name]


def left_behind(store: Store) -> dict[str, bool]:
    """The same for the catalog's own path, and whether each has a runner now. Takes the catalog's lock."""
    names = left_at(store.path)
    if not names:
        return {}
    with store.locked("look"):
        return {name: is_locked(store.path, name) for name in names}
