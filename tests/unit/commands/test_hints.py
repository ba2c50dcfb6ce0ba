"""Every hint that names a command works in the very state that it is told in: brought about, then typed.

Spark is left out: a run goes through claim, sink and recovery as it is, and its loop ends at once.
"""

import ast
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import lake_states
import pytest
from command_builders import Run
from half_done import EPOCH, SINK, commit_of, half_done, progress, run_elsewhere, told, written
from sink_contract import a_table, schema_json

from backfill_cli import errors, main
from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.store import Store
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.contracts.cutover import Swap
from backfill_cli.engine.job import create, preflight
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop import run as engine_run
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.engine.loop.promises import Promises
from backfill_cli.errors import BackfillError, BadData
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Owner
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.verify import TableVerdict, VerifyReport
from backfill_cli.view.verdict import show_verify

pytestmark = pytest.mark.seconds

ROOT = Path(__file__).parents[3]
VERBS = "|".join(main.VERBS)
COMMAND = re.compile(rf"backfill (?:{VERBS})\b(?: (?!or\b)[^\s;,(#]+)*")


@dataclass
class Scene:
    """A folder with the job `orders` half done in the default catalog; `run` types a command there."""

    folder: Path
    run: Run
    config: JobConfig
    catalog: Catalog
    job: JobDefinition

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
        """The hint of the error that `act` raises."""
        with pytest.raises(BackfillError) as caught:
            act()
        return caught.value.hint

    def sql(self, file: Path, sql: str) -> None:
        with duckdb.connect(str(file)) as db:
            db.execute(sql)

    @property
    def sink(self) -> Path:
        return self.folder / "sink.duckdb"

    def commit(self, epoch: int, after: int, token: int = 1) -> None:
        """An epoch for the sink alone."""
        with self.catalog.claim("orders", "test", 5) as claim:
            state = claim.store.load().committed
        checkpoint = replace(state, epoch=epoch, prev_ms=after, token=token, attempt=f"a{epoch}")
        self.config.open_sink().commit(commit_of(self.job, checkpoint, after))

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


def in_catalog_already(s: Scene) -> str:
    first = Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, s.job.pin.position)
    return s.failed(lambda: s.catalog.create_job(s.job, Control(), first))


def claimed(s: Scene, act: Callable[[Any], object]) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        return s.failed(lambda: act(claim.store))


def no_such_arrow(s: Scene) -> str:
    return claimed(s, lambda store: store.become(JobState.PAUSING, ""))


def epoch_used(s: Scene) -> str:
    record = EpochRecord(EPOCH, 0, Phase.SNAPSHOT, EPOCH)
    return claimed(s, lambda store: store.take((), Control(), JobState.STOPPED, record))


def never_prepared(s: Scene) -> str:
    return claimed(s, lambda store: store.unprepare(99))


def unknown_job(s: Scene) -> str:
    return s.refused("pause", "ordres")


def unknown_job_of_an_empty_catalog(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "DROP TABLE orders")
    return s.refused("status", "orders")


def catalog_damaged(s: Scene) -> str:
    whole = s.catalog.path.read_bytes()
    s.catalog.path.write_bytes(whole[:12288] + bytes(b ^ 0xFF for b in whole[12288:]))
    hint = s.refused("status", "orders")
    moved = re.search(r"\(mv (\S+) (\S+)\)", hint)
    assert moved is not None
    Path(moved[1]).rename(moved[2])
    return hint


def catalog_missing(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "DROP TABLE orders")
    s.catalog.path.unlink()
    return s.refused("pause", "orders")


def taken_over(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        with Store(s.catalog.path).writing() as db:
            lease.write(db, "orders", replace(lease.read(db, "orders"), token=99))
        return s.failed(lambda: claim.store.heartbeat(6, progress()))


def held_elsewhere(s: Scene) -> str:
    run_elsewhere(s.catalog.path)
    return s.refused("resume", "--from-sink", "job.toml")


def no_checkpoint(s: Scene) -> str:
    s.sql(s.catalog.path, "DELETE FROM checkpoints")
    return s.ended("resume", "orders")


def no_config_named(s: Scene) -> str:
    (s.folder / "job.toml").unlink()
    return s.refused("start")


def no_config(s: Scene) -> str:
    (s.folder / "job.toml").unlink()
    return s.refused("plan", "--config", "job.toml")


def faulty_config(s: Scene) -> str:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "job.toml").write_text(text + "oops = 1\n")
    hint = s.refused("plan", "--config", "job.toml")
    (s.folder / "job.toml").write_text(text)
    return hint


def table_dropped(s: Scene) -> str:
    s.sql(s.sink, "DROP TABLE orders")
    return s.ended("resume", "orders")


def table_in_use(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "INSERT INTO orders VALUES (7, 'mine')")
    return s.refused("start", "--config", "job.toml")


def second_job(s: Scene) -> None:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "second.toml").write_text(text.replace('name = "orders"', 'name = "second"', 1))


def table_of_another_job(s: Scene) -> str:
    second_job(s)
    return s.refused("start", "--config", "second.toml")


def table_of_a_job_whose_catalog_is_lost(s: Scene) -> str:
    second_job(s)
    s.catalog.path.unlink()
    return s.refused("start", "--config", "second.toml")


def token_is_older(s: Scene) -> str:
    s.config.open_sink().fence("orders", 50)
    return s.failed(lambda: s.config.open_sink().fence("orders", 1))


def marker_gone_under_a_runner(s: Scene) -> str:
    s.sink.unlink()
    return s.failed(lambda: s.commit(20, EPOCH))


def sink_restored_under_a_runner(s: Scene) -> str:
    return s.failed(lambda: s.commit(40, 30))


def owned_just_now(s: Scene) -> str:
    third = Owner("id-3", lease.this_host(), str(s.folder / "third.duckdb"))
    return s.failed(lambda: s.config.open_sink().own("orders", third, None))


def differs(s: Scene) -> str:
    return shown(s, VerifyReport("orders", 5, (TableVerdict("orders", "orders", False, 1, 2),), 1.0))


def differs_while_converging(s: Scene) -> str:
    s.sql(s.catalog.path, "UPDATE jobs SET state = 'done', caught_up_ms = 5")
    report = VerifyReport("orders", 5, (TableVerdict("orders", "orders", False, 1, 2),), 1.0)
    return shown(s, replace(report, converging=True))


def shown(s: Scene, report: VerifyReport) -> str:
    return s.failed(lambda: show_verify(report, True))


def nothing_to_verify(s: Scene) -> str:
    from backfill_cli.engine.verify.job import verify_against

    s.sql(s.sink, "DELETE FROM _backfill_jobs")
    sink: Any = s.config.open_sink()
    return s.failed(lambda: verify_against(None, s.job, sink, False, s.folder / "v", None))  # type: ignore[arg-type]


def history_gone_for_verify(s: Scene) -> str:
    from backfill_cli.engine.verify.job import history_named

    def compared() -> None:
        with history_named("orders"):
            raise errors.HistoryGone("a change file is gone", "put it back, or drop the job and start over")

    return s.failed(compared)


def sink_gone_for_verify(s: Scene) -> str:
    s.sink.unlink()
    sink: Any = s.config.open_sink()

    def copy() -> None:
        with sink.copied("orders", False, s.folder):
            pass

    return s.failed(copy)


def two_tables(s: Scene) -> None:
    """Of a promised epoch one table has it, the other does not."""
    s.sql(
        s.sink,
        "INSERT INTO _backfill_markers "
        "SELECT job, 'more', 'main.more', 20, token, 'a20', NULL FROM _backfill_markers",
    )
    s.sql(s.catalog.path, f"UPDATE jobs SET sink_tables = '{more_tables(s)}'")


def more_tables(s: Scene) -> str:
    from backfill_cli.model.codec import encode

    more = SinkTable("more", "more", ("id",), schema_json(id="long", name="string"))
    s.sql(s.sink, "CREATE TABLE more (id BIGINT NOT NULL, name VARCHAR)")
    return f"[{', '.join(encode(table) for table in (*s.job.tables, more))}]"


def staging_damaged_between_tables(s: Scene) -> str:
    two_tables(s)
    s.prepared(Staged("gone"))
    return s.ended("resume", "orders")


def refused_between_tables(s: Scene) -> str:
    two_tables(s)
    s.prepared(Staged("a20"))
    with s.catalog.claim("orders", "test", 5) as claim:
        promised = claim.store.load().prepared
        assert promised is not None
        job = Job("orders", claim.token, (*s.job.tables, replace(s.job.tables[0], name="more")), "")
        promises = Promises(job, claim.store, s.config.open_sink(), NoStager())  # type: ignore[arg-type]
        return s.failed(lambda: promises.take_back(promised, BadData("a row that the sink can never take")))


def heartbeat_died(s: Scene) -> str:
    def renew() -> None:
        raise RuntimeError("a fault of ours")

    return s.failed(Heartbeat("orders", renew, 1_000, Wake())._beat_by_name)


def sink_newer(s: Scene) -> str:
    s.commit(20, EPOCH)
    return s.ended("resume", "orders")


def sink_older(s: Scene) -> str:
    s.sql(s.sink, "UPDATE _backfill_markers SET epoch = 0")
    return s.ended("resume", "orders")


def stopped_early(s: Scene) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_run, "run_loop", lambda *_: Tick.STOPPED)
        return s.ended("start", "--config", "job.toml", "--until", "caught-up")


def other_result(s: Scene) -> str:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "job.toml").write_text(text.replace('key = ["id"]', 'key = ["name"]'))
    return s.refused("start", "--config", "job.toml")


def sink_deleted(s: Scene) -> str:
    s.sink.unlink()
    return s.refused("resume", "orders")


def nothing_saved(s: Scene) -> str:
    s.sink.unlink()
    return s.refused("resume", "--from-sink", "job.toml")


def nothing_saved_of_an_unknown_job(s: Scene) -> str:
    s.sink.unlink()
    s.catalog.path.unlink()
    return s.refused("resume", "--from-sink", "job.toml")


def not_known_here(s: Scene) -> str:
    s.config.open_sink().own("orders", s.catalog.made(), s.catalog.made())
    s.sql(s.sink, "DELETE FROM _backfill_owners")
    return s.refused("start", "--config", "job.toml", "--catalog", "other/catalog.duckdb")


def of_a_catalog_that_is_there(s: Scene) -> str:
    return s.refused("start", "--config", "job.toml", "--catalog", "other/catalog.duckdb")


def of_a_catalog_that_is_lost(s: Scene) -> str:
    s.catalog.path.unlink()
    return s.refused("start", "--config", "job.toml")


def of_a_lost_catalog_before_the_first_commit(s: Scene) -> str:
    s.sql(s.sink, "DELETE FROM _backfill_jobs; UPDATE _backfill_markers SET epoch = 0")
    return of_a_catalog_that_is_lost(s)


def of_a_catalog_elsewhere(s: Scene) -> str:
    s.config.open_sink().own("orders", Owner("id-2", "far-host", "/far/c.duckdb"), s.catalog.made())
    s.catalog.path.unlink()
    return s.refused("start", "--config", "job.toml")


def drop_sink_of_a_known_job(s: Scene) -> str:
    return s.refused("drop", "orders", "--sink", "job.toml", "--confirm", "orders")


def config_is_there(s: Scene) -> str:
    return s.refused("init")


def looked_at(s: Scene, name: str, *words: str) -> str:
    """`init` of a new config looks at a file of this name, which breaks off."""
    (s.folder / "job.toml").unlink()
    (s.folder / "more").mkdir()
    (s.folder / "more" / name).write_bytes(b'{"id": 1, "name')
    return s.refused("init", "--path", "more/", *words)


def init_of_no_files(s: Scene) -> str:
    return looked_at(s, "a.parquet", "--upstream", "kafka")


def init_of_a_name_that_is_a_pattern(s: Scene) -> str:
    return looked_at(s, "a[1].parquet")


def init_of_a_broken_file(s: Scene) -> str:
    return looked_at(s, "a.json")


def not_confirmed(s: Scene) -> str:
    return s.refused("drop", "orders")


def rows_of_others_to_drop(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        committed = claim.store.load().committed
    existing = tuple(replace(table, plain_inserts=False) for table in s.job.tables)
    s.catalog.rebuild(replace(s.job, tables=existing), committed, Control(), 9)
    return s.refused("drop", "orders", "--with-rows", "--confirm", "orders")


def people_query_what_is_to_go(s: Scene) -> str:
    config = s.folder / "job.toml"
    config.write_text(config.read_text().replace("[sink]", 'live = "shown"\n[sink]'))
    job = load(config)
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine(job.stored(), "forever", job.file)
    sink: Any = job.open_sink()
    sink.cut_over("orders", [Swap(s.job.tables[0], "shown")], EPOCH, 1, 2**42)
    return s.refused("drop", "orders", "--with-rows", "--confirm", "orders")


def not_confirmed_for_a_sink(s: Scene) -> str:
    s.catalog.path.unlink()
    return s.refused("drop", "orders", "--sink", "job.toml")


def not_a_rate(s: Scene) -> str:
    return s.refused("throttle", "--rate", "fast")


def not_a_time(s: Scene) -> str:
    return s.refused("wait", "--for", "stopped", "--timeout", "soon")


def not_taken_in_time(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        return s.ended("pause", "--wait", "--timeout", "1ms")


def no_barrier_in_time(s: Scene) -> str:
    class Runner:
        pid = 1

        def poll(self) -> None:
            """It lives, and is still starting."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.commands._detached.subprocess.Popen", lambda *_, **__: Runner())
        return s.ended("resume", "orders", "--detach", "--wait", "--timeout", "1ms")


def no_job_at_all(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "DROP TABLE orders")
    return s.refused("pause")


def stopped_before_caught_up(s: Scene) -> str:
    return s.refused("wait", "--for", "caught-up")


def not_caught_up_in_time(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        return s.refused("wait", "--for", "caught-up", "--timeout", "1ms")


STATES: dict[str, tuple[Callable[[Scene], str], ...]] = {
    "backfill_cli/catalog/jobs.py:create": (in_catalog_already,),
    "backfill_cli/catalog/jobs.py:become": (no_such_arrow,),
    "backfill_cli/catalog/jobs.py:use_epoch": (epoch_used,),
    "backfill_cli/catalog/jobs.py:unknown": (unknown_job, unknown_job_of_an_empty_catalog),
    "backfill_cli/catalog/permissions.py:_of_duckdb": (catalog_damaged,),
    "backfill_cli/catalog/store.py:_opened": (catalog_missing,),
    "backfill_cli/catalog/lease.py:check": (taken_over,),
    "backfill_cli/catalog/lease.py:held": (held_elsewhere,),
    "backfill_cli/catalog/checkpoints.py:recover": (no_checkpoint,),
    "backfill_cli/catalog/checkpoints.py:_conflict": (never_prepared,),
    "backfill_cli/config/__init__.py:read": (no_config,),
    "backfill_cli/config/__init__.py:_checked": (faulty_config,),
    "backfill_cli/sinks/duckdb/tables.py:check": (table_dropped,),
    "backfill_cli/sinks/duckdb/tables.py:_ddl": (table_in_use,),
    "backfill_cli/sinks/duckdb/tables.py:_refuse_other_owner": (
        table_of_another_job,
        table_of_a_job_whose_catalog_is_lost,
    ),
    "backfill_cli/contracts/marker.py:refuse_old_token": (token_is_older,),
    "backfill_cli/contracts/marker.py:gone": (marker_gone_under_a_runner,),
    "backfill_cli/contracts/marker.py:_restored": (sink_restored_under_a_runner,),
    "backfill_cli/sinks/duckdb/owner.py:own": (owned_just_now,),
    "backfill_cli/sinks/duckdb/verify.py:copied": (sink_gone_for_verify,),
    "backfill_cli/engine/verify/job.py:verify_against": (nothing_to_verify,),
    "backfill_cli/engine/verify/job.py:history_named": (history_gone_for_verify,),
    "backfill_cli/engine/loop/recovery.py:_drop": (staging_damaged_between_tables,),
    "backfill_cli/engine/loop/recovery.py:_require_agreement": (sink_newer, sink_older),
    "backfill_cli/engine/loop/run.py:_ended": (stopped_early,),
    "backfill_cli/engine/job/create.py:require_same": (other_result,),
    "backfill_cli/engine/job/create.py:rebuild": (nothing_saved, nothing_saved_of_an_unknown_job),
    "backfill_cli/engine/job/ownership.py:require_new": (not_known_here,),
    "backfill_cli/engine/job/ownership.py:require_kept": (sink_deleted,),
    "backfill_cli/engine/job/ownership.py:_of_another": (
        of_a_catalog_that_is_there,
        of_a_catalog_that_is_lost,
        of_a_lost_catalog_before_the_first_commit,
        of_a_catalog_elsewhere,
    ),
    "backfill_cli/engine/job/drop.py:_to_drop": (rows_of_others_to_drop,),
    "backfill_cli/engine/job/drop.py:_refuse_queried": (people_query_what_is_to_go,),
    "backfill_cli/engine/job/drop.py:drop_from_sink": (drop_sink_of_a_known_job,),
    "backfill_cli/view/verdict.py:show_verify": (differs, differs_while_converging),
    "commands/init.py:init": (config_is_there,),
    "backfill_cli/config/looked.py:look": (init_of_no_files,),
    "backfill_cli/upstreams/files/looking/sample.py:folder": (init_of_a_name_that_is_a_pattern,),
    "backfill_cli/upstreams/files/looking/sample.py:opened": (init_of_a_broken_file,),
    "commands/drop.py:drop": (not_confirmed, not_confirmed_for_a_sink),
    "commands/throttle.py:rows_per_second": (not_a_rate,),
    "backfill_cli/engine/loop/promises.py:take_back": (refused_between_tables,),
    "backfill_cli/engine/loop/process.py:_beat_by_name": (heartbeat_died,),
    "commands/_posting.py:_waited": (not_taken_in_time,),
    "commands/_detached.py:start_detached": (no_barrier_in_time,),
    "commands/_options.py:config_file": (no_config_named,),
    "commands/_options.py:no_job": (no_job_at_all,),
    "commands/wait.py:wait": (stopped_before_caught_up, not_caught_up_in_time),
}


NEEDS_A_SERVER = {
    "backfill_cli/engine/verify/current.py:_require_all",
    "backfill_cli/sinks/postgres/state.py:own",
    "backfill_cli/sinks/postgres/existing.py:added",
    "backfill_cli/sinks/postgres/tables.py:_refuse_other_owner",
    "backfill_cli/sinks/postgres/tables.py:check",
    "backfill_cli/sinks/postgres/verify.py:_export",
}
"""The sink's say what DuckDB's says in the same states; `tests/contract/test_sink_postgres*.py` reach them, and
`tests/postgres` the upstream's.
"""

NEEDS_A_RUN = {
    "backfill_cli/engine/cutover.py:_cutting",
    "backfill_cli/engine/cutover.py:_require_reversible",
    "backfill_cli/engine/cutover.py:_swaps",
    "backfill_cli/sinks/duckdb/tables.py:drop_tables",
    "backfill_cli/engine/job/create.py:require_same_strategy",
    "backfill_cli/engine/spool/folder.py:_damaged",
    "backfill_cli/engine/spool/folder.py:require_reach",
    "backfill_cli/engine/staging/transform.py:failure",
    "backfill_cli/engine/verify/fix.py:_require_fixable",
    "backfill_cli/engine/verify/job.py:require_drained",
    "backfill_cli/engine/verify/job.py:require_known",
    "commands/verify.py:verify",
}
"""Their states are those of a chain that took its log: tests/crash/test_kill_chain.py reaches them, and
tests/postgres/test_chain_jobs.py; of a transform that fails for a row: tests/unit/engine/test_sample.py. Their
commands (drop, wait, pause --all) are typed in other states here. Or their commands compare, which takes Spark:
tests/crash/test_kill_fix.py types them.
"""

NEEDS_SPARK = {
    "backfill_cli/sinks/iceberg/live.py:_require_none_lost",
    "backfill_cli/formats/lake/state.py:at_one_epoch",
    "backfill_cli/formats/lake/state.py:own",  # says it by `taken`
    "backfill_cli/sinks/iceberg/sink.py:_state",
    "backfill_cli/sinks/iceberg/sink.py:copied",
    "backfill_cli/sinks/iceberg/tables.py:_held_by",
    "backfill_cli/sinks/iceberg/tables.py:check",
    "backfill_cli/sinks/iceberg/tables.py:refuse_gone",
    "backfill_cli/sinks/iceberg/tables.py:refuse_other_job",
    "backfill_cli/sinks/delta/tables.py:marked",
    "backfill_cli/sinks/iceberg/leaving.py:refuse_live",
    "backfill_cli/sinks/iceberg/live.py:_claimed",
    "backfill_cli/sinks/iceberg/live.py:_forward",
    "backfill_cli/sinks/iceberg/live.py:_record",
    "backfill_cli/formats/lake/copy.py:_require_all",
    "backfill_cli/formats/lake/copy.py:at_one_epoch",
}
"""Of Iceberg tables, which Spark makes; of two tables at two epochs; of a sink whose folder of attempts is gone.
`tests/contract/test_sink_*.py` reach them.
"""


def sites() -> Iterator[str]:
    """Every function that raises or makes an error of ours and holds the text of a command."""
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BackfillError)
    }
    for file in sorted([*(ROOT / "backfill_cli").rglob("*.py"), *(ROOT / "commands").glob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            doc = ast.get_docstring(node, clean=False)
            made = {
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            texts = [
                part.value
                for part in ast.walk(node)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if made & kinds and any(COMMAND.search(text) for text in texts if text != doc):
                yield f"{file.relative_to(ROOT)}:{node.name}"


def test_every_error_whose_hint_names_a_command_has_its_states_here() -> None:
    assert set(sites()) == {*STATES, *lake_states.STATES} | NEEDS_A_SERVER | NEEDS_A_RUN | NEEDS_SPARK


class NoStager:
    def __init__(self, *_: object) -> None: ...

    def folder(self, epoch: int, attempt: str) -> str:
        return "/nowhere"

    def intact(self, epoch: int, staged: Staged) -> bool:
        return staged.attempt != "gone"

    def discard(self, epoch: int, attempt: str) -> None: ...

    def sweep(self, keep: object) -> None: ...
    def begin(self) -> None: ...


@pytest.fixture
def scene(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Scene]:
    def tables(config: JobConfig, *_: object, **__: object) -> tuple[SinkTable, ...]:
        return (a_table("orders", schema=schema_json(id="long", name="string"), key=tuple(config.tables[0].key)),)

    monkeypatch.setattr(Resources, "spark", property(lambda self: None))
    monkeypatch.setattr(engine_run, "SparkStager", NoStager)
    monkeypatch.setattr(engine_run, "run_loop", lambda *_: Tick.DONE)
    monkeypatch.setattr(create, "sink_tables", tables)
    monkeypatch.setattr(preflight, "sink_tables", tables)
    monkeypatch.setattr(lease, "LEASE_MS", 1_500)  # a runner of another machine that never comes is waited out

    def made(name: str, sink: str = SINK) -> Scene:
        place = folder / name
        place.mkdir()
        monkeypatch.chdir(place)
        config = written(place, sink=sink)
        catalog = Catalog(place / ".backfill/catalog.duckdb")
        job = half_done(config, catalog)
        config.open_sink().own("orders", catalog.made(), None)
        return Scene(place, run, config, catalog, job)

    return made


@pytest.fixture
def made_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each error of ours was made, as `sites` names it."""
    places: list[str] = []
    make = BackfillError.__init__

    def noted(self: BackfillError, *told: Any) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == errors.__file__ and frame.f_back is not None:
            frame = frame.f_back
        code = frame.f_code
        if Path(code.co_filename).is_relative_to(ROOT):
            places.append(f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_name}")
        make(self, *told)

    monkeypatch.setattr(BackfillError, "__init__", noted)
    return places


@pytest.mark.parametrize(
    ("site", "state"),
    [
        *(pytest.param(site, state, id=state.__name__) for site, states in STATES.items() for state in states),
        *(
            pytest.param(site, state, id=f"delta-{state.__name__}")
            for site, states in lake_states.STATES.items()
            for state in states
        ),
    ],
)
def test_each_command_of_a_hint_works_where_it_is_told(
    scene: Callable[..., Scene], made_at: list[str], site: str, state: Callable[[Scene], str]
) -> None:
    index, count = 0, 1
    while index < count:
        s = scene(str(index), lake_states.SINK if site in lake_states.STATES else SINK)
        found = COMMAND.findall(state(s))
        assert site in made_at[-3:]  # who says it before there is a job asks the catalog once more
        assert found, "no command in the hint"
        count = len(found)
        words = ["job.toml" if word == "FILE" else word for word in shlex.split(found[index])[1:]]
        done = s.run(*words)
        assert done.exit_code == 0, (found[index], done.stderr, done.exception)
        index += 1


@pytest.mark.parametrize(
    "state",
    [
        table_dropped,
        sink_newer,
        sink_older,
        sink_deleted,
        other_result,
        nothing_saved,
        marker_gone_under_a_runner,
        sink_restored_under_a_runner,
        staging_damaged_between_tables,
    ],
)
def test_to_start_over_as_a_hint_says_is_not_refused_for_rows_of_the_first_try(
    scene: Callable[[str], Scene], state: Callable[[Scene], str]
) -> None:
    s = scene("0")
    s.sql(s.sink, "INSERT INTO orders VALUES (1, 'a')")
    over = re.search(r"start over: (backfill drop [^;,]+)", state(s))
    assert over is not None
    assert s.run(*shlex.split(over[1])[1:]).exit_code == 0
    begun = s.run("start", "--config", "job.toml")
    assert begun.exit_code == 0, begun.stderr


def test_resume_records_the_until_that_it_is_given_and_says_so(scene: Callable[[str], Scene]) -> None:
    s = scene("0")
    before = s.catalog.definition("orders").until
    given = "forever" if before == "caught-up" else "caught-up"
    done = s.run("resume", "orders", "--until", given)
    assert done.exit_code == 0, done.stderr
    assert s.catalog.definition("orders").until == given
    assert f"until {given} from now on, stored in the catalog; it was until {before}" in done.stderr
    assert "from now on" not in s.run("resume", "orders").stderr
    assert s.catalog.definition("orders").until == given


@pytest.mark.parametrize("lost", [False, True], ids=["in its catalog", "by its sink"])
def test_a_drop_that_the_sink_refuses_has_changed_nothing(scene: Callable[[str], Scene], lost: bool) -> None:
    s = scene("orders")
    s.sql(s.sink, "DROP TABLE orders; CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR)")
    s.sql(s.sink, "CREATE TABLE lines (of_order BIGINT REFERENCES orders (id))")
    staged = s.folder / ".backfill/staging/orders/1-a/rows.parquet"
    staged.parent.mkdir(parents=True)
    staged.touch()
    if lost:
        s.catalog.path.unlink()
    by = ("--sink", "job.toml") if lost else ()
    before = content(s.sink)
    said = s.ended("drop", "orders", *by, "--with-rows", "--confirm", "orders")
    assert "drop what depends on it first" in said
    assert (content(s.sink), staged.exists()) == (before, True)
    assert [row.name for row in s.catalog.jobs()] == ([] if lost else ["orders"])
    s.sql(s.sink, "DROP TABLE lines")
    done = s.run("drop", "orders", *by, "--with-rows", "--confirm", "orders")
    assert done.exit_code == 0, done.output
    assert not staged.exists()
    with duckdb.connect(str(s.sink)) as db:
        assert ("orders",) not in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()
