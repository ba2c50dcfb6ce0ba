"""The Spark session of a runner: local, on a cluster, or remote; quiet, in UTC, loopback only.

Opened when something first needs it (`spark.opening`); `spark.class_data` makes the next start quicker.
"""

import atexit
import gc
import logging
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from backfill_cli.errors import Fatal, SparkEnded, Transient, UsageError, in_config, shell
from backfill_cli.model.secret_forms import SECRET_NAME, SIGNATURE
from backfill_cli.spark import class_data, driver
from backfill_cli.spark.api import load
from backfill_cli.spark.java import find_java
from backfill_cli.spark.table_formats import GROUPS, session_settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from backfill_cli.config import JobConfig

PARALLELISM = "spark.default.parallelism"
PYTHON = "spark.pyspark.python"
PROPAGATES = "spark.sql.constraintPropagation.enabled"
"""Which Python the executors run; without it the environment's PYSPARK_PYTHON."""
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.variant.allowDuplicateKeys": "false",
}
"""Settings that results depend on; users cannot change them."""

EXPRESSIONS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that a transform's expressions depend on: Spark's own defaults, whatever spark-defaults.conf sets; a
job's [spark] can override them."""

SETTINGS = {
    # Records where in Python each column was created, by calls to the JVM: two thirds of an epoch's planning time.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Searching for unneeded parts of nested columns took half of the optimizer's time; all parts are needed.
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Listing many change files in a Spark job took ten times as long as in the driver.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # A long job's memory must not grow with its history: the UI's store is kept even with the UI off.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.redaction.regex": f"(?i){SECRET_NAME}|passw|sasl",
    "spark.redaction.string.regex": rf"(?i)(?:{SECRET_NAME}|[?&]{SIGNATURE})[\w.-]*\s*[=:]\s*[^\s,;&\]}})]+"
    r"|//[^/\s:@]*:[^/\s@]+@|https?://[^/\s@?#]+@",
}

UNSEEN = {"spark.sql.ui.explainMode": "simple", "spark.sql.maxPlanStringLength": "1000"}
"""Spark describes each query, and each step of its plan, for its UI, and searches the text for secrets: a
twentieth of a small commit's CPU, for nobody where neither the UI nor an event log is on."""

SEEN = ("spark.ui.enabled", "spark.eventLog.enabled")

DELTA_LOG_TASKS = 8
"""In which Spark reads the log of a Delta table, at most: see `table_formats`."""

LOCAL = {
    "spark.driver.memory": "2g",
    # Listen on this machine only.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # In local mode only: on a cluster the module would have to exist on every machine.
    "spark.python.daemon.module": "backfill_cli.spark.daemon",
    # The package of this process, also in a folder with another one of its name, such as a checkout.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}

ENDS_S = 60.0
"""For the Java of an earlier session of this process: it ends in less than a second, but on a busy machine."""

COLLECTED_AFTER = 5_000
"""New objects after which Python looks for cycles, at most: each object of py4j is one, and until it is found Java
keeps what it stands for: of a join of two DataFrames 43 objects and 2 MB, of 300 objects of Python."""

LOG4J = Path(__file__).with_name("log4j2.properties")


def open_session(
    master: str, conf: Mapping[str, str], remote: str | None = None, formats: Sequence[str] = ()
) -> "SparkSession":
    """A session on `master`, or by Spark Connect on `remote` (`sc://…`). The user's `conf` overrides our settings.

    formats: of lake tables (`spark.table_formats`); a Connect server must already have them. Raises UsageError for
    a missing or old Java, a setting that users cannot change, a Connect client that is not installed, a format
    without a jar for this Spark; Transient if the driver or the server cannot be reached.
    """
    _require_ours(conf)
    if remote is not None:
        return _connect(remote, {**ALWAYS, **EXPRESSIONS, **conf})
    unseen = {} if any(conf.get(name, "").strip().lower() == "true" for name in SEEN) else UNSEEN
    return _launch(master, session_settings(formats, {**_settings(master), **unseen, **conf}))


def require_startable(config: "JobConfig") -> None:
    """Raises UsageError for what `session_for` would refuse before it starts anything: settings, and Java."""
    _require_ours(config.spark_conf())
    if config.spark.remote is None:
        find_java(os.environ)


def _require_ours(conf: Mapping[str, str]) -> None:
    for name, value in ALWAYS.items():
        if conf.get(name, value) != value:
            fault = f"spark.conf.{name}: {conf[name]!r}, but results depend on {value!r}"
            raise UsageError(fault, in_config("remove it from [spark.conf]"))


def session_for(config: "JobConfig") -> "SparkSession":
    """A session as `open_session` makes it, with the job's settings."""
    load()
    return open_session(
        config.spark.master or "local[*]", config.spark_conf(), config.spark.remote, config.table_formats()
    )


def _settings(master: str) -> dict[str, str]:
    """Our settings for this master. In local mode as many shuffle partitions as cores: 200 cost seconds.

    And no more tasks for the log of a Delta table: of a small one, each costs as much as its rows.
    """
    if not master.startswith("local"):
        return {**ALWAYS, **EXPRESSIONS, **SETTINGS}
    cores = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", master)
    count = cores[1] if cores and cores[1] else "1"
    partitions = str(os.cpu_count() or 2) if count == "*" else count
    warehouse = str(Path(tempfile.gettempdir()) / "backfill-warehouse")
    return {
        **ALWAYS,
        **EXPRESSIONS,
        **SETTINGS,
        **LOCAL,
        "spark.sql.shuffle.partitions": partitions,
        "spark.databricks.delta.snapshotPartitions": str(min(int(partitions), DELTA_LOG_TASKS)),
        "spark.sql.warehouse.dir": warehouse,
    }


def _launch(master: str, settings: Mapping[str, str]) -> "SparkSession":
    java = find_java(os.environ)
    _own_environment(master)
    # PySpark logs each failed call with its stack before it raises it; we show the error itself.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkConf, SparkContext, accumulators
    from pyspark.sql import SparkSession

    # It prints a stack when Java is killed, which the run reports itself; we use none of its accumulators.
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    kept = class_data.archive_file(java, settings)
    flags = [f'"-Dlog4j2.configurationFile={LOG4J}"', *class_data.flags_to_use(kept)]
    own = settings.get("spark.driver.extraJavaOptions", "")
    conf = {**settings, "spark.driver.extraJavaOptions": " ".join([*flags, own]).strip(), "spark.master": master}
    conf["spark.app.name"] = "backfill"
    if SparkSession.getActiveSession() is not None:
        return SparkSession.builder.config(map=dict(conf)).getOrCreate()
    if SparkContext._active_spark_context is not None:
        raise UsageError(
            "Spark runs in this process already, for another job, or in another thread",
            "stop that first, or run the job in a process of its own: start(detach=True)",
        )
    if masters := re.findall(r"(?:^spark://|,)([^,]+):(\d+)(?=,|$)", master):
        _require_answer(f"the cluster {master}", "spark.master", masters)
    gc.set_threshold(min(gc.get_threshold()[0], COLLECTED_AFTER))
    with suppress(TimeoutExpired):  # it ends by itself: nobody writes to it any more
        driver.end(ENDS_S)
    SparkContext._gateway = None  # else a Java that an earlier session had, without these jars
    try:
        SparkContext._ensure_initialized(gateway=driver.start(conf))
        context = SparkContext(conf=SparkConf().setAll(list(conf.items())))
        _require_parallelism(context)
        _leave_to_java(context)
        # PySpark itself heeds this setting only if it is started by spark-submit.
        if not master.startswith("local") and (python := context.getConf().get(PYTHON)) is not None:
            context.pythonExec = python
    except Py4JJavaError as error:
        raise Fatal(f"Spark did not start on {master}: {_cause(str(error))}", driver.CORRECT) from error
    except Py4JError as error:
        told = SparkEnded(f"Spark's driver ended: {error}\n{driver.last_words()}", driver.AGAIN)
        raise driver.ended(driver.NOTICED_S) or told from error
    try:
        session = SparkSession(context)
    except Py4JJavaError as error:  # the cluster refused it, or fell silent, after a minute
        raise Fatal(f"Spark did not start on {master}\n{driver.last_words()}", driver.CORRECT) from error
    _require_valid(session)
    _plan_quickly(session, context.getConf().contains)
    if kept is not None and not kept.exists():
        atexit.register(class_data.make_in_background)
    return session


def _plan_quickly(session: "SparkSession", said: Callable[[str], bool]) -> None:
    """What is known of a column is not derived again for each that is computed from it, unless that is asked for.

    Of a log of 17 columns in JSON it took half a minute, now and then. In sessions beside this one it finds
    filters for joins of users: they keep Spark's value.
    """
    if not said(PROPAGATES):
        session.conf.set(PROPAGATES, "false")


def _leave_to_java(context: "SparkContext") -> None:
    """Neither this process nor Spark's Python workers look for modules in the jars of `table_formats`.

    PySpark puts what it downloaded before all else on Python's path. Each process then reads the directories of
    these jars, of 30,000 files, as it first imports a module, and a worker again for each task that imports one.
    """
    includes = context._python_includes or []
    ours = {name for name in includes if name.endswith(".jar") and name.startswith(GROUPS)}
    context._python_includes = [name for name in includes if name not in ours]
    sys.path[:] = [path for path in sys.path if os.path.basename(path) not in ours]


def _require_parallelism(context: "SparkContext") -> None:
    """Raises UsageError if Spark cannot read the one setting that it first reads for a job."""
    from py4j.protocol import Py4JJavaError

    told = context.getConf().get(PARALLELISM)
    if told is None:
        return
    try:
        _ = context.defaultParallelism
    except Py4JJavaError as error:
        context.stop()
        raise _refusal(f"{PARALLELISM} = {told!r}: {_cause(str(error))}") from error


def _refusal(said: str) -> UsageError:
    return UsageError(f"Spark refuses: {said}", driver.CORRECT)


def _require_valid(session: "SparkSession") -> None:
    """Raises UsageError if Spark cannot read one of its settings.

    PySpark 4.1 reads the settings of the thread's session whenever it converts an error, which then fails without
    end; a thread that is new has no session.
    """
    with ThreadPoolExecutor(1) as thread:
        failed = thread.submit(lambda: session.conf.get("spark.sql.session.timeZone")).exception()
    if failed is not None:
        said = _cause(str(failed.__context__ or failed))
        session.stop()
        raise _refusal(said)


def _cause(trace: str) -> str:
    """The message of the innermost exception of a Java stack trace."""
    without_frames = re.sub(r"\n\s*(?:at |\.{3} \d+ more).*", "", trace)
    innermost = re.split(r"^(?:Caused by)?: ", without_frames, flags=re.MULTILINE)[-1]
    return re.sub(r"^(?:[a-z]\w*\.)+", "", innermost).removeprefix("SparkException: ").strip()


def _own_environment(master: str) -> None:
    """Uses this installation's Spark and, if driver and workers share a machine, this interpreter."""
    for foreign in ("SPARK_HOME", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(foreign, None)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _require_answer(what: str, option: str, addresses: Sequence[tuple[str, int | str]]) -> None:
    """Raises Transient if none of the addresses accepts a connection: Spark would try them for 1 to 10 minutes."""
    silent: OSError | None = None
    for host, port in addresses:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            return
        except OSError as error:
            silent = error
    raise Transient(f"{what} does not answer: {silent}", f"start it, or correct {option}") from silent


def _connect(remote: str, conf: Mapping[str, str]) -> "SparkSession":
    where = urlsplit(remote.partition(";")[0])
    if where.scheme != "sc" or not where.hostname:
        fault = f"spark.remote: {where.geturl()!r} is not a Spark Connect address"
        raise UsageError(fault, in_config('write it like spark.remote = "sc://host:15002"'))
    _require_answer(
        f"the Spark Connect server {where.netloc}", "spark.remote", [(where.hostname, where.port or 15002)]
    )
    try:
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise UsageError(f"spark.remote: {error}", shell("pip install 'backfill-cli[connect]'")) from error
    from pyspark.errors import PySparkException

    # Tells pyspark.sql.functions and types which of PySpark's two implementations to use.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    builder = RemoteSession.builder.remote(remote)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        return cast("SparkSession", builder.getOrCreate())
    except PySparkException as error:
        raise Transient(f"the Spark Connect server {where.netloc} refuses: {error}", driver.CORRECT) from error
