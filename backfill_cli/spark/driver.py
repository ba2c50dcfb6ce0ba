"""The driver's Java process: started without the terminal's signals and screen, or secrets in its argv."""

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from signal import Signals
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock

from backfill_cli.errors import BackfillError, Fatal, Held, Hint, SparkEnded, in_config
from backfill_cli.spark.class_data import cache_folder
from backfill_cli.spark.table_formats import JARS, PACKAGES

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

SHOWN_LINES = 15
AT_EVERY_START = (
    "NOTE: Picked up JDK_JAVA_OPTIONS",
    "Picked up JAVA_TOOL_OPTIONS",
    "WARNING: Using incubator modules",
    "Setting default log level",
    "To adjust logging level",
)
AGAIN = Hint.of("run the command again")
CORRECT = in_config("correct it in [spark.conf], spark.master or spark.remote, or in spark-defaults.conf")
NOTICED_S = 1.0  # a killed process closes its connections first; that it has ended shows milliseconds later

_started: "list[JavaGateway]" = []


@cache
def log() -> IO[bytes]:
    """The file that the driver writes to instead of the user's screen: unnamed, deleted with the process."""
    return tempfile.TemporaryFile(prefix="backfill-spark-")


def last_words() -> str:
    """The last lines that the driver wrote, without those that every start writes."""
    file = log()
    file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
    lines = file.read().decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if not line.startswith(AT_EVERY_START)]
    return "\n".join(lines[-SHOWN_LINES:])


def start(conf: Mapping[str, str]) -> "JavaGateway":
    """A running driver with these settings. Raises Fatal, with the driver's output, if it does not start."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # Its own session: a signal to the process group then reaches only the runner, which commits first.
    process: dict[str, Any] = {"stdout": log(), "stderr": log(), "start_new_session": True}
    with _submit_arguments(conf), _fetching(conf), _left_without(process):
        try:
            gateway: JavaGateway = launch_gateway(popen_kwargs=process)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise _not_started(conf) from error
    _started.append(gateway)
    return gateway


@contextmanager
def _left_without(process: Mapping[str, Any]) -> Iterator[None]:
    """A process that ends in the block, which another thread runs, leaves no folder behind.

    process: what PySpark starts Java with; it adds where Java says how to be reached.
    """

    def clean_up() -> None:
        said = process.get("env", {}).get("_PYSPARK_DRIVER_CONN_INFO_PATH")
        if said is not None:
            shutil.rmtree(Path(said).parent, ignore_errors=True)

    atexit.register(clean_up)
    try:
        yield
    finally:
        atexit.unregister(clean_up)


def _not_started(conf: Mapping[str, str]) -> Fatal:
    if not last_words():  # it says what is wrong with its settings
        said = "Spark's Java process ended before it was ready: it was killed, or ran out of memory"
        return SparkEnded(said, AGAIN)
    said = f"Spark's driver did not start\n{last_words()}"
    if PACKAGES in conf:
        lacks = in_config(f"if {conf[PACKAGES]} cannot be downloaded, name the jars in [spark.conf]: {JARS!r}")
        return Fatal(said, CORRECT + "; " + lacks)
    return Fatal(said, CORRECT)


def end(timeout_s: float) -> None:
    """The driver has exited. Its session must already be stopped; without this call it exits with this process."""
    while _started:
        gateway = _started.pop()
        if gateway.proc is not None:
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=timeout_s)


def forget_ended() -> None:
    """Drivers that have ended by now are no cause of what fails from now on."""
    _started[:] = [one for one in _started if one.proc is None or one.proc.poll() is None]


def ended(wait_s: float = 0.0) -> SparkEnded | None:
    """The error for a driver of this process that has ended by itself; None if all still run after `wait_s`."""
    for gateway in _started:
        if gateway.proc is None:  # started by another process
            continue
        with suppress(TimeoutExpired):
            code = gateway.proc.wait(timeout=wait_s)
            how = f"by {Signals(-code).name}" if code < 0 else f"with exit code {code}"
            said = (
                f"Spark's Java process (pid {gateway.proc.pid}) ended {how}: it was killed, or ran out of memory"
            )
            words = [line.strip() for line in last_words().splitlines() if not line.startswith("\tat ")]
            return SparkEnded("; ".join([said, *(f"its last words: {line}" for line in words[-1:])]), AGAIN)
    return None


def require_running() -> None:
    """Raises SparkEnded once the driver has ended, which the next call of Spark would notice in its own words."""
    gone = ended()
    if gone is not None:
        raise gone


@contextmanager
def explained(way_on: Hint) -> Iterator[None]:
    """A failure in the block is SparkEnded, with this hint, if the driver has ended: that is what caused it."""
    try:
        yield
    except Held:
        raise
    except SparkEnded as exc:
        exc.hint = way_on if exc.hint == AGAIN else exc.hint
        raise
    except Exception as exc:
        gone = ended(0.0 if isinstance(exc, BackfillError) else NOTICED_S)
        if gone is None:
            raise
        gone.hint = way_on
        raise gone from exc


@contextmanager
def _fetching(conf: Mapping[str, str]) -> Iterator[None]:
    """If jars may have to be downloaded, one process at a time: Ivy's cache does not allow two."""
    if PACKAGES not in conf:
        yield
        return
    with FileLock(_writable(cache_folder(os.environ)) / "fetching.lock"):
        yield


def _writable(folder: Path | None) -> Path:
    """The folder, made if it can be, else one for this user's temporary files."""
    temporary = Path(tempfile.gettempdir()) / f"backfill-{os.geteuid()}"
    for one in (folder or temporary, temporary):
        with suppress(OSError):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(one, os.W_OK | os.X_OK):
                return one
    return temporary  # whose error says what is wrong


@contextmanager
def _submit_arguments(conf: Mapping[str, str]) -> Iterator[None]:
    """The settings are passed in a file that only this user can read, as everyone can see argv."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.TemporaryDirectory(prefix="backfill-") as folder:
        file = Path(folder) / "spark.properties"
        file.touch(0o600)
        file.write_text("".join(f"{_escaped(k)}={_escaped(v)}\n" for k, v in conf.items()), "utf-8")
        arguments = ["--properties-file", str(file), "--load-spark-defaults"]
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(arguments)} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(text: str) -> str:
    """The text as in a Java properties file: ASCII, with all separators escaped."""
    special = {
        "\\": "\\\\",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "=": "\\=",
        ":": "\\:",
        " ": "\\ ",
        "#": "\\#",
        "!": "\\!",
    }
    units = text.encode("utf-16-be")
    points = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(special.get(chr(p), chr(p) if 32 <= p < 127 else f"\\u{p:04x}") for p in points)
