"""Processes that hold a DuckDB sink's file, die while they write it, or meet a full disk."""

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def in_another_process(path: Path, code: str) -> str:
    script = f"import duckdb\ncon = duckdb.connect({str(path)!r})\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def held_by_another_process(path: Path) -> Iterator[int]:
    script = f"import duckdb; con = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        yield holder.pid
        holder.stdin.close()


def prepare_then_die(path: Path, tables: tuple[object, ...]) -> int:
    """Prepare in a child that dies where it would close the file; returns the size of the log that it left."""
    script = f"""
        import os, duckdb
        from backfill_cli.contracts import SinkTable
        from backfill_cli.sinks.duckdb import DuckDBOptions
        from backfill_cli.sinks.duckdb.sink import DuckDBSink
        from backfill_cli.sinks.duckdb.tables import Tables
        def prepare(*given, whole=Tables.prepare, **named):
            whole(*given, **named)
            os._exit(9)
        Tables.prepare = prepare
        DuckDBSink(DuckDBOptions(path={str(path)!r})).prepare("orders", {tables!r}, False)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == 9
    wal = Path(f"{path}.wal")
    return wal.stat().st_size if wal.exists() else 0


def commit_in_a_child(path: Path, commit: object, env: dict[str, str]) -> int:
    """Commit in a separate process; returns how it ended."""
    plan = path.parent / "commit.pickle"
    plan.write_bytes(pickle.dumps(commit))
    script = f"""
        import pickle
        from pathlib import Path
        from backfill_cli.sinks.duckdb import DuckDBOptions
        from backfill_cli.sinks.duckdb.sink import DuckDBSink
        commit = pickle.loads(Path({str(plan)!r}).read_bytes())
        DuckDBSink(DuckDBOptions(path={str(path)!r})).commit(commit)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, **env}, check=False)
    return done.returncode


def commit_until_full(path: Path, commits: list[object], limit_bytes: int) -> tuple[int, str]:
    """Commit in a child that may write files of at most `limit_bytes`. Returns how many it committed, a hint."""
    plan = path.parent / "commits.pickle"
    plan.write_bytes(pickle.dumps(commits))
    script = f"""
        import pickle, resource
        from pathlib import Path
        from backfill_cli.errors import Transient
        from backfill_cli.sinks.duckdb import DuckDBOptions
        from backfill_cli.sinks.duckdb.sink import DuckDBSink
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))
        sink = DuckDBSink(DuckDBOptions(path={str(path)!r}))
        done = 0
        for commit in pickle.loads(Path({str(plan)!r}).read_bytes()):
            try:
                sink.commit(commit)
            except Transient as error:
                print(done, error.exit_code, error.message, error.hint, sep="\\n")
                break
            done += 1
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert run.returncode == 0, run.stderr
    kept, exit_code, message, *_, hint = run.stdout.splitlines()
    assert (exit_code, "no room" in message) == ("6", True)
    return int(kept), hint
