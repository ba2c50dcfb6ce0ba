"""A Python that has imported the program: a command that a test types and waits for is forked from it.

Of the 1.7 s of CPU of a small start in a Java that is kept, imports are 0.5 s. Commands that go on while a test
does other things have a Python of their own, so have those with a Java of their own or on a cluster, and all that
tests elsewhere start.
"""

import atexit
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from kept_java import kept_java

LIMIT_S = 240.0
IMPORTED = (
    "backfill_cli.main",
    *(f"backfill_cli.commands.{verb}" for verb in ("_running", "resume", "start", "status", "throttle", "verify")),
    *(f"backfill_cli.engine.{part}" for part in ("loop.run", "verify.fix", "verify.job")),
    *(f"backfill_cli.upstreams.{kind}" for kind in ("delta", "files", "iceberg", "kafka", "postgres")),
    *(f"backfill_cli.sinks.{kind}" for kind in ("delta", "duckdb", "iceberg", "kafka", "postgres")),
    "pyspark.java_gateway",
    "pyspark.sql.functions",
    "pyarrow.parquet",
    "tenacity",
)


def typed(
    folder: Path, env: Mapping[str, str], *words: str, formats: tuple[str, ...] = (), jars: str = ""
) -> "CompletedProcess[str]":
    """`backfill WORDS` in that folder and environment, ended; its Java is the kept one. Its stdin is empty."""
    with kept_java(formats, jars) as java, tempfile.TemporaryDirectory(prefix="backfill-typed-") as said:
        out, err = Path(said, "out"), Path(said, "err")
        command = _warm().Process(target=_run, args=(words, folder, {**env, **java}, out, err))
        command.start()
        command.join(LIMIT_S)
        if command.exitcode is None:
            command.kill()
            command.join()
            raise TimeoutExpired(words, LIMIT_S, out.read_text(), err.read_text())
        return CompletedProcess(words, command.exitcode, out.read_text(), err.read_text())


@cache
def _warm() -> ForkServerContext:
    """Its first process starts the Python that is kept, which ends with this process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def _run(words: tuple[str, ...], folder: Path, env: Mapping[str, str], out: Path, err: Path) -> None:
    """In the fork: the command, from its environment to its exit."""
    for stream, file in ((1, out), (2, err)):
        with file.open("wb") as said:
            os.dup2(said.fileno(), stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["backfill", *words]
    from backfill_cli.main import main

    with _as_an_interpreter_ends():
        main()


@contextlib.contextmanager
def _as_an_interpreter_ends() -> Iterator[None]:
    """`multiprocessing` leaves out what is to be done at exit."""
    try:
        yield
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
