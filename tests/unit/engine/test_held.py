"""Upstreams of jobs without a runner are queried in parallel, and for no longer than a probe waits."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.engine.job import held
from backfill_cli.errors import START_OVER, BackfillError, ConfigError, HistoryGone, Transient
from backfill_cli.model.upstream import HeldLog

LOG = HeldLog(5 << 20)


class Upstream:
    """Returns the given answer; None: no answer until the test ends."""

    def __init__(self, says: HeldLog | Exception | None, ended: threading.Event) -> None:
        self._says, self._ended = says, ended
        self.lease = self

    def lag(self, pin: object, position: object) -> HeldLog:
        if self._says is None:
            self._ended.wait(60)
            raise Transient("ended")
        if isinstance(self._says, Exception):
            raise self._says
        return self._says

    def close(self) -> None: ...


def asked(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, HeldLog | Exception | None], limit_s: float
) -> dict[str, HeldLog | BackfillError]:
    ended = threading.Event()
    definition = {name: SimpleNamespace(config=name, pin=None, has_tables_to_itself=True) for name in says}
    catalog: Any = SimpleNamespace(
        job=lambda name: SimpleNamespace(live=name.endswith("live")),
        definition=definition.__getitem__,
        change_logs=SimpleNamespace(acknowledged=lambda name: None),
    )
    opened = {name: Upstream(one, ended) for name, one in says.items()}

    def stored(config: str) -> SimpleNamespace:
        if config.startswith("unreadable"):
            raise ConfigError("a reference leads nowhere", "define it")
        return SimpleNamespace(open_upstream=lambda: opened[config])

    monkeypatch.setattr(held, "from_stored", stored)
    try:
        return held.held_logs(says, catalog, limit_s)
    finally:
        ended.set()


def test_each_job_is_told_what_its_upstream_says(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = HistoryGone("is gone", START_OVER)
    told = asked(monkeypatch, {"a": LOG, "b": gone, "live": LOG}, 30)
    assert told == {"a": LOG, "b": gone}
    assert "backfill drop b --with-rows --confirm b" in str(gone.hint)


def test_a_stored_config_that_cannot_be_read_concerns_only_a_job_without_a_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asked(monkeypatch, {"unreadable": LOG, "unreadable but live": LOG}, 30)
    assert list(told) == ["unreadable"]
    assert isinstance(told["unreadable"], ConfigError)


def test_upstreams_that_do_not_answer_are_named_within_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are queried at once; the one that answers is among the first."""
    began = time.monotonic()
    told = asked(monkeypatch, {"well": LOG, **{f"mute{n}": None for n in range(2 * held.AT_ONCE)}}, 3)
    assert time.monotonic() - began < 2 * 3, "those that had to wait for a turn had a limit of their own"
    assert told.pop("well") == LOG
    assert len(told) == 2 * held.AT_ONCE
    assert all(isinstance(said, Transient) and "no answer within 3 s" in said.message for said in told.values())
    with typed(told["mute0"]) as hint:  # type: ignore[arg-type]
        hint.says("check the upstream's load and the network")
        assert asked(monkeypatch, {"mute0": LOG}, 30) == {"mute0": LOG}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its thread ends so
def test_a_fault_of_ours_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        asked(monkeypatch, {"a": ZeroDivisionError()}, 30)
