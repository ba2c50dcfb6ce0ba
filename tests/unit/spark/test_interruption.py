"""A block that nobody wants any more is interrupted; of Spark there is only what is told to it."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from backfill_cli.errors import Interrupted, Transient
from backfill_cli.spark.interruption import interruptible


@dataclass
class Session:
    """Over Spark Connect. A job of it runs until its tag is interrupted."""

    tags: list[str] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)

    def addTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def interruptTag(self, tag: str) -> None:
        assert tag in self.tags
        self.interrupted.set()

    def run(self) -> None:
        assert self.interrupted.wait(30), "nobody interrupts it"
        self.interrupted.clear()
        raise ValueError("the job was cancelled")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    return Session()


def test_what_is_unwanted_is_interrupted_whatever_it_failed_with(session: Any) -> None:
    with pytest.raises(Interrupted), interruptible(session, lambda: True):
        session.run()
    assert session.tags == []


def test_a_block_that_begins_another_job_is_interrupted_again(session: Any) -> None:
    def two_jobs() -> None:
        with suppress(ValueError):
            session.run()
        session.run()

    with pytest.raises(Interrupted), interruptible(session, lambda: True):
        two_jobs()


def test_a_failure_of_what_is_wanted_passes_through(session: Any) -> None:
    with pytest.raises(ValueError, match="of its own"), interruptible(session, lambda: False):
        raise ValueError("of its own")
    assert session.tags == []


def test_what_is_completed_all_the_same_is_kept(session: Any) -> None:
    with interruptible(session, lambda: True):
        assert session.interrupted.wait(30)


def test_an_inbox_that_cannot_be_read_for_once_is_asked_again(session: Any) -> None:
    answers = iter([Transient("the catalog is locked"), True])

    def unwanted() -> bool:
        answer = next(answers, True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(Interrupted), interruptible(session, unwanted):
        session.run()
