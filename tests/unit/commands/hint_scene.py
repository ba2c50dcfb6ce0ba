"""A job that is half done, and whatever is typed in its folder: where the hints of errors are brought about.

Spark is left out: a run goes through claim, sink and recovery as it is, and its loop ends at once.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import duckdb_shared
import half_done
import pytest
from command_builders import Run
from half_done import EPOCH, SINK, commit_of, progress, told, written
from sink_contract import a_table, schema_json

from backfill_cli.catalog import Catalog, lease
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition, Sink, SinkExtras, SinkTable
from backfill_cli.engine.job import checks
from backfill_cli.engine.job.ownership import start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop import run as engine_run
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.verify import TableVerdict, VerifyReport
from backfill_cli.view.console import complain


@dataclass
class Scene:
    """A folder with the job `orders` half done in the default catalog; `run` types a command there.

    begun: how it came to be as it was before the test; None where that left something outside the folder.
    """

    folder: Path
    run: Run
    config: JobConfig
    catalog: Catalog
    job: JobDefinition
    begun: tuple[str, ...] | None

    def refused(self, *words: str) -> str:
        """The hint of a command that must be refused, and has changed nothing."""
        before = self.held()
        hint = self.ended(*words)
        assert self.held() == before
        return hint

    def held(self) -> object:
        """What catalogs and sink hold, and which files are there. Locks, calls and logs are no state."""
        stateless = (".lock", ".queue", ".runner", ".wake", ".log")
        files = {file for file in self.folder.rglob("*") if file.suffix not in stateless and file.name != "logs"}
        return files - {self.folder / "other"}, content(self.catalog.path), content(self.sink)

    def ended(self, *words: str) -> str:
        """The hint of a command that fails once it has begun."""
        done = self.run(*words)
        assert done.exit_code not in (0, None), done.output
        assert "Traceback" not in done.output
        assert "Try: " in done.stderr, (done.stderr, done.exception)
        return done.stderr.split("Try: ", 1)[1]

    def failed(self, act: Callable[[], object]) -> str:
        """The hint of the error that `act` raises, as a run of the job would end with it."""
        with pytest.raises(BackfillError) as caught, start_over_named("orders", self.catalog):
            act()
        complain(caught.value)
        return str(caught.value.hint)

    def sql(self, file: Path, sql: str) -> None:
        with duckdb_shared.opened(file) as db:
            db.execute(sql)

    def move(self) -> None:
        """The folder with everything in it has another path, and is the working directory there."""
        self.folder = self.folder.rename(self.folder.with_name("moved"))
        os.chdir(self.folder)
        self.catalog = Catalog(self.folder / ".backfill/catalog.duckdb")

    @property
    def sink(self) -> Path:
        return self.folder / "sink.duckdb"

    def commit(self, epoch: int, after: int, token: int = 1) -> None:
        """An epoch for the sink alone."""
        with self.catalog.claim("orders", "test", 5) as claim:
            state = claim.store.load().committed
        checkpoint = replace(state, epoch=epoch, prev_ms=after, token=token, attempt=f"a{epoch}")
        self.config.open_sink().commit(commit_of(self.job, checkpoint, after))

    def catch_up(self) -> None:
        """What a run would do: the job is done, at epoch 20, and was verified there."""
        told = replace(progress(), phase=Phase.UPSTREAM, epoch=EQUAL.epoch)
        with self.catalog.claim("orders", "test", 5) as claim:
            claim.store.become(JobState.STARTING, "")
            claim.store.become(JobState.RUNNING, "")
            epoch = replace(claim.store.load().committed, epoch=EQUAL.epoch, prev_ms=EPOCH, token=claim.token)
            epoch = replace(epoch, attempt="a20", phase=Phase.UPSTREAM)
            claim.store.prepare(replace(epoch, plan=EpochPlan(), staged=Staged("a20")), None, told)
            sink = self.config.open_sink()
            sink.fence("orders", claim.token)
            sink.commit(commit_of(self.job, epoch, EPOCH))
            claim.store.mark(EpochRecord(EQUAL.epoch, EPOCH, Phase.UPSTREAM, EQUAL.epoch), told)
            claim.store.become(JobState.DONE, "caught up")
        self.catalog.verified.note(EQUAL)

    def prepared(self, staged: Staged) -> None:
        """The catalog promises an epoch that the sink does not have."""
        with self.catalog.claim("orders", "test", 5) as claim:
            state = claim.store.load().committed
            epoch = replace(state, epoch=20, prev_ms=EPOCH, token=claim.token, attempt="a20", splits={})
            claim.store.prepare(replace(epoch, plan=EpochPlan(), staged=staged), None, progress())


def content(file: Path) -> object:
    try:
        return told(file)
    except duckdb.Error:
        return file.read_bytes()


EQUAL = VerifyReport("orders", 20, (TableVerdict("orders", "orders", True, 0, 0),), 1.0)


class PlainSink:
    """Of a sink only what every sink has, as one of somebody else's package."""

    def __init__(self, sink: Sink) -> None:
        for name in ("prepare", "owner", "own", "fence", "committed", "commit", "saved", "drop", "forget"):
            setattr(self, name, getattr(sink, name))
        self.capabilities, self.extras = sink.capabilities, SinkExtras()


class NoStager:
    def __init__(self, *_: object) -> None: ...

    def folder(self, epoch: int, attempt: str) -> str:
        return "/nowhere"

    def intact(self, epoch: int, staged: Staged) -> bool:
        return staged.attempt != "gone"

    def current_folder(self, epoch: int, staged: Staged) -> str:
        return self.folder(epoch, staged.attempt)

    def discard(self, epoch: int, attempt: str) -> None: ...

    def sweep(self, keep: object) -> None: ...
    def awaited(self) -> None: ...
    def so_far(self) -> tuple[int, int]:
        return 0, 0


@pytest.fixture
def scene(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Scene]:
    """Makes a scene of this name."""
    scenes = tmp_path_factory.getbasetemp() / "scenes"  # whose paths are in what is saved

    def tables(config: JobConfig, *_: object, **__: object) -> tuple[SinkTable, ...]:
        return (a_table("orders", schema=schema_json(id="long", name="string"), key=tuple(config.tables[0].key)),)

    monkeypatch.setattr(Resources, "spark", property(lambda self: None))
    monkeypatch.setattr(engine_run, "SparkStager", NoStager)
    monkeypatch.setattr(engine_run, "run_loop", lambda *_: Tick.DONE)
    monkeypatch.setattr(checks, "sink_tables", tables)
    monkeypatch.setattr(checks, "require_readable", lambda *_: None)
    monkeypatch.setattr(lease, "LEASE_MS", 1_500)  # a runner of another machine that never comes is waited out

    def made(name: str, sink: str = SINK) -> Scene:
        shutil.rmtree(scenes, ignore_errors=True)
        place = scenes / name
        scenes.mkdir()
        monkeypatch.chdir(place.parent)
        begun = (name, half_done.CONFIG) if sink == SINK else None
        if begun is None or not _restored(begun, place):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            os.chdir(place)
            config = written(place, sink=sink)
            catalog = Catalog(place / ".backfill/catalog.duckdb")
            half_done.half_done(config, catalog)
            config.open_sink().own("orders", catalog.made(), None)
            _save(begun, place)
        os.chdir(place)
        catalog = Catalog(place / ".backfill/catalog.duckdb")
        job = catalog.definition("orders")
        return Scene(place, run, load(place / "job.toml"), catalog, job, begun)

    return made


_SAVED: dict[tuple[str, ...], Path] = {}
"""Copies of folders of scenes that this process has made, by how they came to be."""


def settled(s: Scene, name: str, act: Callable[[], object]) -> Scene:
    """The scene after `act`, which is done once in a process: others that began like this one are copies.

    name: of what it does, among all that begin alike.
    """
    begun = None if s.begun is None else (*s.begun, name)
    if begun is None or not _restored(begun, s.folder):
        act()
        _save(begun, s.folder)
    s.begun, s.catalog = begun, Catalog(s.catalog.path)
    return s


def _restored(begun: tuple[str, ...], place: Path) -> bool:
    """Whether the folder is one that came to be so."""
    if begun not in _SAVED:
        return False
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_SAVED[begun], place, symlinks=True)
    os.chdir(place)
    return True


def _save(begun: tuple[str, ...] | None, place: Path) -> None:
    if begun is not None:
        _SAVED[begun] = place.parent.with_name(f"scene-{len(_SAVED)}")
        shutil.copytree(place, _SAVED[begun], symlinks=True)
