"""What the upstream holds for a job without a runner: read from the upstream itself, whose disk it fills."""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from backfill_cli.config import from_stored
from backfill_cli.contracts import Lease
from backfill_cli.errors import BackfillError, Transient

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.upstream import HeldLog

LIMIT_S = 5.0
"""For all jobs together: the caller is often a health probe with a time limit of its own (often 10 s)."""

AT_ONCE = 8
"""Jobs that are queried in parallel: each is one more session of a database."""

Ask = Callable[[], "HeldLog | None"]


def held_without_runner(name: str, catalog: "Catalog", lease: Lease) -> "HeldLog | None":
    """What it keeps for the job now; None if that is not measured, or if a runner has the job and checks it.

    Changes nothing. Raises what a run of the job would raise at its first observation: HistoryGone for a slot that
    is gone, StateConflict for another database.
    """
    ask = _asking(name, catalog)
    return None if ask is None else ask(lease)


def told_by_upstreams(
    names: Iterable[str], catalog: "Catalog", limit_s: float = LIMIT_S
) -> "dict[str, HeldLog | BackfillError]":
    """By job, what its stored upstream holds for it, or the error that prevented an answer.

    Answers within `limit_s`, whatever the upstreams do. Does not start Spark.
    """
    found: dict[str, HeldLog | BackfillError] = {}
    asked: dict[str, Ask] = {}
    for name in names:
        try:
            if (ask := _of_stored(name, catalog)) is not None:
                asked[name] = ask
        except BackfillError as error:
            found[name] = error
    for name, answer in _side_by_side(asked, limit_s).items():
        if isinstance(answer, Exception) and not isinstance(answer, BackfillError):
            raise answer
        if answer is not None:
            found[name] = answer
    return found


def _asking(name: str, catalog: "Catalog") -> "Callable[[Lease], HeldLog | None] | None":
    """The query, with everything that the catalog contributes to it; None if a runner has the job."""
    if catalog.job(name).live:
        return None
    definition, position = catalog.definition(name), catalog.change_logs.acknowledged(name)

    def ask(lease: Lease) -> "HeldLog | None":
        try:
            return lease.lag(definition.pin, position)
        except BackfillError as error:
            raise error.naming(name, definition.has_tables_to_itself) from None

    return ask


def _of_stored(name: str, catalog: "Catalog") -> Ask | None:
    """The same, for the upstream of the stored config."""
    ask = _asking(name, catalog)
    if ask is None:
        return None
    config = from_stored(catalog.definition(name).config)

    def asked() -> "HeldLog | None":
        with closing(config.open_upstream()) as upstream:
            return None if upstream.lease is None else ask(upstream.lease)

    return asked


def _side_by_side(asked: dict[str, Ask], limit_s: float) -> "dict[str, HeldLog | Exception | None]":
    """Each job's answer or error; Transient for those without an answer in time, whose threads are abandoned."""
    until = time.monotonic() + limit_s
    waiting: queue.SimpleQueue[tuple[str, Ask]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, HeldLog | Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        while time.monotonic() < until:
            try:
                name, ask = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((name, ask()))
            except BackfillError as error:
                answers.put((name, error))
            except Exception as error:
                answers.put((name, error))
                raise SystemExit from error  # ends only this thread: the caller raises it

    for one in asked.items():
        waiting.put(one)
    for _ in range(min(AT_ONCE, len(asked))):
        threading.Thread(target=work, daemon=True).start()
    late = Transient(f"no answer within {limit_s:g} s", "check the upstream's load and the network")
    found: dict[str, HeldLog | Exception | None] = dict.fromkeys(asked, late)
    for _ in asked:
        try:
            name, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        found[name] = answer
    return found
