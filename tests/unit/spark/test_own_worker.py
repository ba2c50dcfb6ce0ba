"""Our own worker process: what it returns, what it raises, and that it ends with its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backfill_cli.errors import RETRIED, BadData, Interrupted, Transient
from backfill_cli.spark import own_worker
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.interruption import interruptible

pytestmark = pytest.mark.seconds


def doubled(number: int) -> tuple[int, int]:
    return number * 2, os.getpid()


def refused(row: str) -> None:
    raise BadData(f"row {row}", "correct it")


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def oddly(_: None) -> None:
    raise Odd("a ", "row")


def killed(_: None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_is_done_by_one_other_process_and_our_errors_come_back_whole() -> None:
    (twice, there), (_, again) = own_worker.run(doubled, 21), own_worker.run(doubled, 1)
    assert (twice, there) == (42, again)
    assert there != os.getpid()
    with pytest.raises(BadData, match="row 7") as raised:
        own_worker.run(refused, "7")
    assert str(raised.value.hint) == "correct it"


def test_an_exception_that_does_not_travel_comes_as_its_text_and_the_process_stays() -> None:
    before = own_worker.run(doubled, 1)[1]
    with pytest.raises(RuntimeError, match="Odd: a row"):
        own_worker.run(oddly, None)
    assert own_worker.run(doubled, 1)[1] == before


def unpicklable(_: None) -> object:
    return lambda: None


def test_a_result_that_cannot_be_pickled_is_a_failure_of_the_task_and_no_death() -> None:
    """Transient would repeat it until the retry limit, though it fails every time."""
    before = own_worker.run(doubled, 1)[1]
    with pytest.raises(RuntimeError, match="pickle"):
        own_worker.run(unpicklable, None)
    assert own_worker.run(doubled, 1)[1] == before


def slept(begun: Path) -> None:
    begun.touch()
    time.sleep(60)


def test_an_interrupt_ends_the_task_with_the_process(tmp_path: Path) -> None:
    before = own_worker.run(doubled, 1)[1]
    begun, main = tmp_path / "begun", threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        own_worker.run(slept, begun)
    assert time.monotonic() - began < 50
    assert own_worker.run(doubled, 1)[1] != before


def test_an_unwanted_block_ends_the_process_and_its_task_and_the_next_one_has_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    before, begun = own_worker.run(doubled, 1)[1], tmp_path / "begun"
    began = time.monotonic()
    with pytest.raises(Interrupted), interruptible(_NoSpark(), begun.exists):
        own_worker.run(slept, begun)
    assert time.monotonic() - began < 50
    assert own_worker.run(doubled, 1)[1] != before


def test_what_is_unwanted_in_another_thread_or_between_two_tasks_ends_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    before, looked = own_worker.run(doubled, 1)[1], threading.Semaphore(0)

    def unwanted() -> bool:
        looked.release()
        return True

    with interruptible(_NoSpark(), unwanted), ThreadPoolExecutor(1) as pool:
        for _ in range(3):  # the third look comes once the second has ended
            assert looked.acquire(timeout=30)
        assert pool.submit(own_worker.run, doubled, 2).result()[1] == before
    assert own_worker.run(doubled, 1)[1] == before


class _NoSpark(SparkSession):
    """There are no jobs."""

    def __init__(self) -> None: ...
    def addTag(self, tag: str) -> None: ...
    def removeTag(self, tag: str) -> None: ...
    def interruptTag(self, tag: str) -> list[str]:
        return []


def test_tasks_of_several_threads_are_done_one_after_another() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda n: own_worker.run(doubled, n)[0], range(8))) == list(range(0, 16, 2))


def test_a_process_that_dies_is_transient_and_the_next_task_has_a_new_one() -> None:
    with pytest.raises(Transient, match="was killed, or ran out of memory") as died:
        own_worker.run(killed, None)
    assert died.value.hint == RETRIED
    assert own_worker.run(doubled, 4)[0] == 8


PARENT = """
import time
from test_own_worker import doubled
from backfill_cli.spark import own_worker

if __name__ == "__main__":
    print(own_worker.run(doubled, 1)[1], flush=True)
    time.sleep(60)
"""


def test_the_process_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(tmp_path / "parent.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert os.getpgid(child) != os.getpgid(parent.pid)  # Ctrl-C reaches the whole group; the parent handles it
        os.kill(child, signal.SIGINT)
        time.sleep(0.3)
        assert _lives(child)
        parent.kill()
    ends = time.monotonic() + 20
    while _lives(child):
        assert time.monotonic() < ends
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
