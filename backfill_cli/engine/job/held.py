"""What a job holds upstream: created at its start, and what it costs the upstream while no runner has the job.

A start notes it in the catalog first, so that a killed start leaves nothing. Its cost is read from the upstream
itself, whose disk it fills.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import Lease, Source
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import BackfillError, Transient, command
from backfill_cli.failpoint import hit
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.units import spell_duration, spell_moment
from backfill_cli.model.upstream import HeldLog, PendingStart, Pin

LIMIT_S = 5.0
"""For all jobs together: the caller is often a health probe with a time limit of its own (often 10 s)."""

AT_ONCE = 8
"""Jobs that are queried in parallel: each is one more session of a database."""

Ask = Callable[[], HeldLog | None]


def held_without_runner(name: str, catalog: Catalog, lease: Lease) -> HeldLog | None:
    """What it keeps for the job now; None if that is not measured, or if a runner has the job and checks it.

    Changes nothing. Raises what a run of the job would raise at its first observation: HistoryGone for a slot that
    is gone, StateConflict for another database.
    """
    ask = _asking(name, catalog)
    return None if ask is None else ask(lease)


def held_logs(
    names: Iterable[str], catalog: Catalog, limit_s: float = LIMIT_S
) -> dict[str, HeldLog | BackfillError]:
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


def _asking(name: str, catalog: Catalog) -> Callable[[Lease], HeldLog | None] | None:
    """The query, with everything that the catalog contributes to it; None if a runner has the job."""
    if catalog.job(name).live:
        return None
    definition, position = catalog.definition(name), catalog.change_logs.acknowledged(name)

    def ask(lease: Lease) -> HeldLog | None:
        try:
            return lease.lag(definition.pin, position)
        except BackfillError as error:
            raise error.naming(name, definition.has_tables_to_itself) from None

    return ask


def _of_stored(name: str, catalog: Catalog) -> Ask | None:
    """The same, for the upstream of the stored config."""
    ask = _asking(name, catalog)
    if ask is None:
        return None
    config = from_stored(catalog.definition(name).config)

    def asked() -> HeldLog | None:
        with closing(config.open_upstream()) as upstream:
            return None if upstream.lease is None else ask(upstream.lease)

    return asked


def _side_by_side(asked: dict[str, Ask], limit_s: float) -> dict[str, HeldLog | Exception | None]:
    """Each job's answer or error; Transient for those without an answer in time, whose threads are abandoned."""
    until = time.monotonic() + limit_s
    late = Transient(f"no answer within {spell_duration(limit_s)}", "check the upstream's load and the network")
    answers: dict[str, HeldLog | Exception | None] = dict.fromkeys(asked, late)
    turns = threading.Semaphore(AT_ONCE)

    def work(name: str, ask: Ask) -> None:
        with turns:
            if time.monotonic() >= until:
                return
            try:
                answers[name] = ask()
            except BackfillError as error:
                answers[name] = error
            except Exception as error:
                answers[name] = error
                raise SystemExit from error  # ends only this thread: the caller raises it

    threads = [threading.Thread(target=work, args=one, daemon=True) for one in asked.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(answers)


LOOK_S = 0.5
"""How often an upstream is asked for whom it waits."""


@contextmanager
def holding(
    config: JobConfig, catalog: Catalog, upstream: Source, pin: Pin, resources: Resources
) -> Iterator[Pin]:
    """What the job holds in its upstream exists, created once nothing else can refuse the start; yields its pin.

    It is removed again if the job is not created after all; after a kill, the next start or a drop removes it.
    """
    lease = upstream.lease
    if lease is None:
        yield pin
        return
    mark, now_ms = uuid.uuid4().hex[:16], wall_clock_ms()
    begun = PendingStart(config.job.name, mark, config.stored(), replace(pin, splits=()), now_ms)
    resources.with_retries(lambda: catalog.starts.begin(begun))
    hit("start-begun")
    try:
        with _waits_told(upstream, resources):
            resources.with_retries(lambda: lease.create(mark))
        hit("start-held")
        held = resources.with_retries(resources.upstream.pin)
        if held.schema != pin.schema:
            raise Transient("the upstream's columns changed while the job was being created", "start it again")
        yield held
    except BaseException:
        with suppress(BackfillError):
            _settle(begun, catalog, lease)
        raise
    hit("start-made")
    resources.with_retries(lambda: _settle(begun, catalog, lease))


@contextmanager
def _waits_told(upstream: Source, resources: Resources) -> Iterator[None]:
    """Inside the block it is told for whom the upstream waits, and what would end the wait."""
    waits_for = upstream.extras.waits_for
    if waits_for is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        seen: Limit | None = None
        while not over.wait(LOOK_S):
            with suppress(BackfillError):
                waits = waits_for()
                if waits is not None and waits != seen and not over.is_set():
                    resources.tell(replace(waits, kind=Kind.WAITING))
                seen = waits

    thread = threading.Thread(target=look, name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def settle(job: str, catalog: Catalog, of_another: bool = False) -> None:
    """What an interrupted start of the job left upstream is removed, or is the job's if it was created.

    Done in that start's upstream. Raises StateConflict if its options lead to another system now; each error names
    the start, and says how to continue without it. of_another: that upstream differs from the job's present one,
    so the hint need not help to reach it.
    """
    begun = catalog.starts.of(job)
    if begun is None:
        return
    try:
        with Resources(from_stored(begun.config)) as resources:
            if resources.upstream.lease is not None:
                _settle(begun, catalog, resources.upstream.lease)
    except BackfillError as error:
        error.message = (
            f"{spell_pending_start(begun)}, and what it left upstream could not be removed: {error.message}"
        )
        if job not in {row.name for row in catalog.jobs()}:
            without = "to leave it there: " + command(f"drop {job} --without-upstream --confirm {job}")
            error.hint = without if of_another else error.hint.also("; or ", without)
        raise


def recover_start_before(config: JobConfig, catalog: Catalog, resources: Resources) -> None:
    """As `settle`, before the job of this config runs; waits only if the job needs the same upstream."""
    name = config.job.name
    begun = resources.with_retries(lambda: catalog.starts.of(name))
    if begun is None:
        return
    if json.loads(begun.config).get("upstream") == config.tree["upstream"]:
        resources.with_retries(lambda: settle(name, catalog))
    else:
        settle(name, catalog, of_another=True)


def _settle(begun: PendingStart, catalog: Catalog, lease: Lease) -> None:
    if begun.job in {row.name for row in catalog.jobs()}:
        lease.adopt(begun.mark, begun.pin)
    else:
        lease.clean_up(begun.mark, begun.pin)
    catalog.starts.end(begun.job)


def spell_pending_start(begun: PendingStart) -> str:
    """For display."""
    return f"a start of job {begun.job!r}, begun {spell_moment(begun.begun_ms)}, did not complete"
