"""One Spark session, one server of each kind per process, for all tests. A file runs in one process.

`--all` adds the tests that take long.
"""

import gc
import os
import runpy
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import hint_run
import pytest
import turns
from hypothesis import settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from broker import Broker
    from hint_typed import Typed
    from postgres import Server
    from pyspark.sql import SparkSession
    from registry import Registry
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

    from backfill_cli.errors import BackfillError


# The Connect client brings pandas into this environment; users do not have it, so neither do tests, the commands
# that they start, and Spark's Python workers. (`mapInArrow` of Spark 4.1 does not start without it.)
WITHOUT = str(Path(__file__).with_name("without"))
sys.path.insert(0, WITHOUT)
hint_run.begin()
runpy.run_path(str(Path(WITHOUT) / "sitecustomize.py"))
if WITHOUT not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT, os.environ.get("PYTHONPATH")]))

# Every JVM that a test starts compiles quickly rather than well and collects in one thread: most of its code runs
# once. Tests of a cluster took 100 s, not 172 s. One compiler alone has 48 MB for its code, which many tests fill:
# Java then sweeps and compiles again, a fifth of its CPU. With half of a heap that is large from the start, there
# are fewer collections: a tenth. Hadoop starts `chmod` twice for each file that it writes, 5,000 times in
# test_sink_iceberg.py: without Java's helper between, that file takes a twentieth less.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC -XX:NewRatio=1 -XX:InitialRAMPercentage=5",
    *(["-Djdk.lang.Process.launchMechanism=VFORK"] if sys.platform == "linux" else []),
)
os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(JAVA))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked `long` too, and all `in_turn`")
    parser.addoption("--quick", action="store_true", help="leave out what needs Spark, a broker, or seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; run with --all")
    config.addinivalue_line("markers", "in_turn(kind): of those of a kind one runs, see turns.py; with --all each")
    config.addinivalue_line("markers", "seconds: takes seconds; left out with --quick")
    # A deadline an example would fail tests on a busy machine and find nothing.
    # The rules are seen to fail with 25 examples (scripts/mutate); each run draws others.
    settings.register_profile("each change", deadline=None, max_examples=25)
    settings.register_profile("all", deadline=None, max_examples=100)
    settings.load_profile("all" if config.getoption("--all") else "each change")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        slow = [item for item in items if _slow(item)]
        items[:] = [item for item in items if not _slow(item)]
        config.hook.pytest_deselected(items=slow)
    if not config.getoption("--all"):
        skipped = pytest.mark.skip(reason="long: run with --all")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skipped)
        now = turns.turn()
        later = pytest.mark.skip(reason=f"not in turn {now}: run with --all, or {turns.TURN}")
        for item in turns.out_of_turn((one for one in items if not one.get_closest_marker("long")), now):
            item.add_marker(later)


def _copy_catalogs() -> None:
    """A new catalog of this process is a copy of the first one, with an id of its own.

    Its migrations, each of them synced, took a quarter of the CPU of tests with commands; what they make is tested
    in tests/unit/catalog, and other processes run them.
    """
    from backfill_cli.catalog.store import Store, shipped_migrations

    shipped, first, migrate = shipped_migrations(), list[bytes](), Store._migrate

    def made(store: Store, path: Path, version: int) -> None:
        if version or tuple(store._scripts()) != shipped or not first:
            migrate(store, path, version)
            if not version and tuple(store._scripts()) == shipped:
                first.append(path.read_bytes())
            return
        path.write_bytes(first[0])
        with store._attached(path) as db:
            db.execute("UPDATE catalog_identity SET id = gen_random_uuid()::VARCHAR")
            db.execute("CHECKPOINT")

    Store._migrate = made  # type: ignore[method-assign]


def pytest_sessionstart(session: pytest.Session) -> None:
    import duckdb_shared

    _copy_catalogs()
    folder: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    duckdb_shared.share(folder.getbasetemp().resolve())


def pytest_report_header(config: pytest.Config) -> str:
    return f"in turn: {'all' if config.getoption('--all') else turns.turn()}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: "WorkerController") -> None:
    import shares

    shares.tell_where(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> "Scheduling | None":
    import shares

    return shares.Shares(config) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector waits: it took a quarter of the CPU, looking again at what collecting tests makes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What collecting made stays, and few tests make cycles: the collector took a tenth of their CPU."""
    if hasattr(session.config, "workerinput"):
        import shares

        shares.tell(session.config, session.items)
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _slow(item: pytest.Item) -> bool:
    """Whether `--quick` leaves it out."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return (
        not {"spark", "broker", "schema_registry", "postgres"}.isdisjoint(fixtures)
        or item.get_closest_marker("seconds") is not None
    )


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances of DuckDB can use what a user's can, and no test's shares one."""
    import duckdb_shared

    from backfill_cli.duckdb_instance import Instance

    for name, own in zip(("_attached", "_allowed"), duckdb_shared.OWN, strict=True):
        monkeypatch.setattr(Instance, name, own)


@pytest.fixture
def judged(record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Call it with the number of inputs that a test of the oracle judged, those of each route counted."""
    return partial(record_property, "judged")


@pytest.fixture
def typed() -> "Callable[[BackfillError | str], AbstractContextManager[Typed]]":
    """Type a hint in the state in which it was shown: see `hint_typed`."""
    from hint_typed import typed

    return typed


HINTS = pytest.StashKey[list[str]]()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A hint that cannot be typed fails the run, whichever test showed it; so does one that no test shows.

    So does an answer with `--json` that is not as its schema says.
    """
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    import answers_run

    run = hint_run.judged()
    whole = _is_whole(config) and not session.testsfailed
    faults = [f"{fault}\n    {where}" for fault, where in run.faults.items()]
    faults += [*(hint_run.ratchet(run) if whole else ()), *answers_run.faults(whole)]
    config.stash[HINTS] = [hint_run.figures(run), *faults]
    if faults:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_whole(config: pytest.Config) -> bool:
    """Whether these are all tests, as CI runs them: from the root, none left out."""
    left_out = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
    return (
        os.environ.get("CI") == "true"
        and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and not config.getoption("--quick")
        and not any(getattr(config.option, name, None) for name in left_out)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(HINTS, []):
        terminalreporter.write_line(line)
    reports = [
        one for held in terminalreporter.stats.values() for one in held if isinstance(one, pytest.TestReport)
    ]
    told = [(one, n) for one in reports for name, n in one.user_properties if name == "judged"]
    if told:
        inputs = sum(int(str(n)) for one, n in told if one.when == "call")
        seconds = sum({one.nodeid: one.duration for one, _ in told if one.when == "call"}.values())
        terminalreporter.write_line(f"oracle: {inputs:,} inputs x routes in {seconds:.0f} s")


def _look_names_up_once() -> None:
    """PySpark asks Java for the same classes at each expression: a tenth of the CPU of tests with a session."""
    from py4j import java_gateway

    for kind in (java_gateway.JVMView, java_gateway.JavaPackage, java_gateway.JavaClass):
        kind.__getattr__ = cache(kind.__getattr__)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> "Iterator[SparkSession]":
    from backfill_cli.lake.merge import INTERPRETED
    from backfill_cli.spark import driver, opening
    from backfill_cli.spark.session import open_session

    _look_names_up_once()
    small = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
    # A test's queries see some rows each, so compiling takes longest, and plans that are made anew after each
    # shuffle a tenth. Commands that a test starts do both.
    once = {**INTERPRETED, "spark.sql.adaptive.enabled": "false"}
    conf = {**small, "spark.driver.memory": "2g", **({} if request.config.getoption("--all") else once)}
    with opening._ONE_AT_A_TIME:  # a start that a test before refused may still be opening one, and stops it then
        session = open_session("local[2]", conf, formats=("delta", "iceberg"))
    driver._started.clear()  # no error of a test waits a second for the news that this one has died
    yield session
    hint_run.parse_in_spark(session)
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A real broker, started by the first test that needs one; topics in it need names of their own.

    It cleans and compacts within a second. Where none can run the test is skipped, in CI it fails.
    """
    from broker import NoBroker, running
    from kafka_secured import listener

    quick = {
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "500",
        "log.initial.task.delay.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "log.segment.delete.delay.ms": "1000",
        # Rights, of the user of the secured listener; whoever comes without a name has all.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    folder = tmp_path_factory.mktemp("broker")
    held = running(folder, settings=quick, secured=listener(folder))
    try:
        broker = held.__enter__()
    except NoBroker as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Kafka broker: {reason}")
    yield broker
    held.__exit__(None, None, None)


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Registry]":
    """A real schema registry, started by the first test that needs one; subjects in it need names of their own.

    Where none can run the test is skipped, in CI it fails.
    """
    from registry import NoRegistry, running

    held = running(tmp_path_factory.mktemp("registry"))
    try:
        registry = held.__enter__()
    except NoRegistry as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no schema registry: {reason}")
    yield registry
    held.__exit__(None, None, None)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Server]":
    """A real PostgreSQL, started by the first test that needs one; `postgres_database.py` makes databases in it.

    Its statistics are those of the last ANALYZE of a test: no other process of the server makes some.
    Where none can run the test is skipped, in CI it fails.
    """
    from postgres import NoPostgres, running
    from postgres_database import open_folder

    with open_folder() as folder:
        held = running(folder, settings={"autovacuum": "off"})
        try:
            server = held.__enter__()
        except NoPostgres as reason:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no PostgreSQL: {reason}")
        yield server
        held.__exit__(None, None, None)
