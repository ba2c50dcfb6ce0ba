"""A job gets another definition at a barrier: another config, or a table that joins or leaves it.

Nothing is in flight then, and the command is still in the inbox. One transaction of the catalog takes it and
writes the definition: after a crash the command is there, or the job is what it says. What cannot be is refused
there, and the job goes on as it was.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.runner import RunnerStore
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition, Partitions, Sink, SinkTable, derived_table
from backfill_cli.engine.job.aside import (
    holds,
    kept_of,
    let_go,
    read_anew,
    require_aside,
)
from backfill_cli.engine.job.asked import config_after
from backfill_cli.engine.job.derived import require_unread, take_in
from backfill_cli.engine.job.drop import require_unqueried
from backfill_cli.engine.job.join import (
    joined,
    require_absent,
    require_joinable,
    require_known,
    require_own_rows,
    require_removable,
)
from backfill_cli.engine.job.leave import having_left, of_table, without_aside
from backfill_cli.engine.job.ownership import forget_strays, owners_sought
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import present, require_same, require_same_strategy, sections_of, strategy_of
from backfill_cli.engine.job.side_tables import late_tables
from backfill_cli.engine.loop.checkpoints import having, promised, with_table, without_table
from backfill_cli.engine.staging.quarantine import side_name
from backfill_cli.errors import (
    BackfillError,
    BadData,
    Fatal,
    HistoryGone,
    SinkInUse,
    StateConflict,
    UsageError,
    command,
)
from backfill_cli.failpoint import hit
from backfill_cli.model.aside import Aside, Standing, out, put_back, with_sections
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Recovered
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Barrier, Mutations, Verb, until_redefined
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.split import partition_number
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.partitions import offsets

REFUSED = "refused"
"""Beside a command in the ledger: its barrier has refused it."""
PATIENCE_S = 10.0
"""How long what may pass is waited for: longer, and the command is refused, as the job goes on without it."""

Tell = Callable[[Limit | str], None]


def redefined(
    job: JobDefinition,
    config: JobConfig,
    resources: Resources,
    store: RunnerStore,
    catalog: Catalog,
    opened: ExitStack,
    tell: Tell,
    token: int,
) -> tuple[JobDefinition, JobConfig, Resources]:
    """The job as it goes on, once the command that redefines it is taken or refused.

    opened: closes what this opens. Spark's session stays the one that `resources` has. token: of the runner.
    """
    recovered = resources.with_retries(store.load)
    job = replace(job, aside=catalog.definition(job.name).aside)  # a refill may have put a table back meanwhile
    _, asked = until_redefined(store.commands())
    if asked is None:
        return job, config, _as_before(job, config, resources, opened, tell)
    barrier = Barrier.next(recovered.last_epoch, wall_clock_ms(), Mutations(recovered.control, (asked,)))
    phase, verbs = recovered.committed.phase, barrier.mutations.verbs
    record = EpochRecord(barrier.epoch, barrier.prev_ms, phase, barrier.epoch, mutations=verbs)
    change = Change.read(asked.payload)
    try:
        with _faults_named(job.name), ExitStack() as tried:
            _require_standing(job, asked.verb, change)
            fresh = tried.enter_context(opened_as(_changed(job, asked.verb, change), resources, tell))
            match asked.verb:
                case Verb.ADD if change.derived:
                    made = _with_derived(job, change, recovered, fresh, catalog)
                case Verb.REMOVE if change.derived:
                    made = _without_derived(job, change, recovered, fresh)
                case Verb.ADD:
                    made = _with_table(job, change, recovered, fresh, catalog)
                case Verb.PUT_BACK:
                    made = _put_back(job, change, recovered, fresh, catalog)
                case Verb.REMOVE if job.standing(change.table) is Standing.ASIDE:
                    made = _forgotten(job, change, recovered, fresh, catalog)
                case Verb.REMOVE:
                    made = _without_table(job, change, recovered, fresh, catalog)
                case _:
                    made = _configured(job, change, fresh, catalog)
            opened.enter_context(tried.pop_all())
    except BackfillError as refusal:  # also Held, by a job that has the table: the lease is not asked in there
        why = Limit(refusal.message, hint=refusal.hint)
        record = replace(record, mutations=f"{verbs}, {REFUSED}")
        resources.with_retries(lambda: store.refused(asked, record, why))
        tell(f"{asked.said}, requested by {asked.by}, was refused: {why.said}")
        return job, config, _as_before(job, config, resources, opened, tell)
    hit("redefinition-checked")
    control, after = change.paced(recovered.control), made.definition
    committed = made.committed or recovered.committed
    promise = promised(recovered, committed, record.epoch, wall_clock_ms(), token)
    resources.with_retries(lambda: store.redefined(asked, record, job, after, control, made.committed, promise))
    hit("redefined")
    tell(f"{asked.said}, requested by {asked.by}, is taken: {_spell(change)}")
    fresh.patience_s = fresh.config.retry.limit_s
    fresh.with_retries(lambda: forget_strays(after, committed, fresh.sink, tell))
    return after, fresh.config, fresh


def _as_before(
    job: JobDefinition, config: JobConfig, resources: Resources, opened: ExitStack, tell: Tell
) -> Resources:
    """Upstream and sink of the job as it is, opened anew: those of before are closed."""
    same = opened.enter_context(Resources(config, tell, opening=resources.opening))
    same.with_retries(lambda: same.upstream.restore(job.pin))
    return same


def _require_standing(job: JobDefinition, verb: Verb, change: Change) -> None:
    """The table is still to the job what the command took it for. Raises UsageError."""
    match verb:
        case _ if change.derived:
            return  # as `_changed` finds it
        case Verb.ADD:
            require_absent(job, change.table)  # else what follows would forget the job's own
        case Verb.PUT_BACK:
            aside_of(job, change.table)
        case Verb.REMOVE:
            if job.derived:  # what waited before may have been refused
                require_unread(job, from_stored(job.config), change.table)
            if job.standing(change.table) is not Standing.ASIDE:
                require_known(job, change.table)


def _changed(job: JobDefinition, verb: Verb, change: Change) -> JobConfig:
    """The config that the job gets."""
    if verb is Verb.SET:
        return present(job, from_stored(change.config))
    if verb is Verb.PUT_BACK:
        before = aside_of(job, change.table)
        return from_stored(job.config).with_table(json.loads(before.section), json.loads(before.options))
    return config_after(job, change)


@contextmanager
def _faults_named(name: str) -> Iterator[None]:
    """A fault that nobody foresaw refuses the command, too: it would end every run that takes it."""
    try:
        yield
    except BackfillError:
        raise
    except Exception as fault:
        said = "".join(str(fault).splitlines()[:1])
        raise Fatal(f"{type(fault).__name__}: {said}", "to tell of it: " + command(f"report {name}")) from fault


def leaves_first(store: RunnerStore) -> bool:
    """Whether a table is to leave the job before anything else of it can change. It need not exist upstream.

    Nor need a derived table be one that can be filled, that leaves the job or becomes another.
    """
    _, asked = until_redefined(store.commands())
    leaves = asked is not None and (asked.verb is Verb.REMOVE or Change.read(asked.payload).again)
    return leaves and store.load().prepared is None


@dataclass(frozen=True, slots=True)
class _Made:
    """committed: what of the job is committed, with all splits, where its tables are others; None: as it is."""

    definition: JobDefinition
    committed: Checkpoint | None = None


def opened_as(config: JobConfig, before: Resources, tell: Tell) -> Resources:
    """Upstream and sink of a config, and the Spark session that is there."""
    opened = Resources(config, tell, opening=before.opening)
    opened.patience_s = min(PATIENCE_S, config.retry.limit_s)
    return opened


def _configured(job: JobDefinition, change: Change, resources: Resources, catalog: Catalog) -> _Made:
    """The job with another config. Raises what refuses it; then nothing has changed."""
    require_same(job, resources.config, lambda: catalog.change_logs.has_been_read(job.name))
    require_same_strategy(job, resources.config, resources.upstream)
    require_aside(resources.config, job.strategy, resources.upstream, job.pin)
    late = late_tables(job, resources.upstream)
    with owners_sought(catalog):
        resources.with_retries(lambda: resources.sink.check(job.name, late, into_existing=False) if late else None)
    resources.with_retries(lambda: resources.upstream.restore(job.pin))
    tables = (*job.tables, *late)
    resources.with_retries(lambda: resources.sink.prepare(job.name, tables, into_existing=True))
    config = resources.config.stored()
    sections = (*change.sections, *sections_of(job, from_stored(change.config)))  # set aside before, or since
    aside = with_sections(job.aside, sections)
    file = change.file or job.config_file
    return _Made(replace(job, config=config, config_file=file, tables=tables, aside=aside))


def _with_table(
    job: JobDefinition, change: Change, recovered: Recovered, resources: Resources, catalog: Catalog
) -> _Made:
    """The job with another table, of which nothing is read. Its table in the sink exists, empty.

    Raises what refuses it; what was made for it is removed again.
    """
    _require_nothing_promised(recovered)
    with opened_as(resources.config.of_tables({change.table}), resources, resources.tell) as alone:
        require_joinable(job, change.table, resources.upstream)
        with _or_as_before(job, change, resources, alone):
            made = joined(job, change, catalog, resources, alone, try_it=False)
            resources.with_retries(lambda: resources.sink.prepare(job.name, made.tables, change.into_existing))
    definition, committed, tables = made.definition, recovered.committed, made.tables
    strategy = strategy_of(resources.config, resources.upstream.capabilities, definition.pin)
    memory = resources.upstream.rejoined(committed.memory, made.pin.schema.keys())
    return _Made(definition, with_table(committed, recovered.control, strategy, made.pin, tables, memory))


def _with_derived(
    job: JobDefinition, change: Change, recovered: Recovered, resources: Resources, catalog: Catalog
) -> _Made:
    """The job with other derived tables, which its next commit fills; or with the new ones, in place of the old.

    Raises what refuses them; then nothing has changed.
    """
    _require_nothing_promised(recovered)
    definition = _of_config(replace(job, config_file=change.file or job.config_file), resources)
    take_in(definition, change, recovered.committed, resources, catalog)
    return _Made(definition)


def _without_derived(job: JobDefinition, change: Change, recovered: Recovered, resources: Resources) -> _Made:
    """The job without derived tables, which stay in the sink as they are, or are dropped.

    Raises what refuses it.
    """
    _require_nothing_promised(recovered)
    resources.with_retries(lambda: resources.upstream.restore(job.pin))
    committed = None
    if change.with_rows:
        gone = [one for one in job.derived if one.name in change.derived]
        dropping = {one.target: encode(derived_table(one)) for one in gone}
        committed = replace(recovered.committed, dropping={**recovered.committed.dropping, **dropping})
    return _Made(_of_config(job, resources), committed)


def _of_config(job: JobDefinition, resources: Resources) -> JobDefinition:
    """The job with the config that is open."""
    config = resources.config
    return replace(job, config=config.stored(), fingerprint=json.dumps(config.fingerprint()))


def _put_back(
    job: JobDefinition, change: Change, recovered: Recovered, resources: Resources, catalog: Catalog
) -> _Made:
    """The job with a table that was set aside, as if all its rows had been read: a refill makes them right.

    Its log continues after its last commit where it still can, otherwise at its new pin. Raises what refuses it.
    """
    _require_nothing_promised(recovered)
    name, before = change.table, aside_of(job, change.table)
    refill = change.refill
    assert refill is not None
    kept = decode(tuple[SinkTable, ...], before.tables)
    with opened_as(resources.config.of_tables({name}), resources, resources.tell) as alone:
        change = replace(change, into_existing=True, mark=change.mark or uuid.uuid4().hex[:12])
        with _or_as_before(job, change, resources, alone):
            require_pending(catalog, job.name, refill)
            if holds(alone.upstream) and (lease := alone.upstream.lease) is not None:
                alone.with_retries(lambda: lease.leave(name, decode(Pin, before.pin)))
            made = joined(without_aside(job, name), change, catalog, resources, alone, try_it=False)
            plain = {one.name: one.plain_inserts for one in kept}
            tables = tuple(replace(one, plain_inserts=plain.get(one.name, True)) for one in made.tables)
            pin = _pin_of(job, before, made.pin, alone)
            goes_on = pin is not made.pin or _goes_on(before, pin, alone)
            held = before.exact and resources.with_retries(lambda: _has_rows(resources.sink, job.name, tables))
            resources.with_retries(lambda: resources.sink.prepare(job.name, tables, True))
    again = tuple(put_back(one, refill, goes_on and held) if one is before else one for one in job.aside)
    definition = replace(made.definition, pin=job.pin.joined(pin), tables=(*job.tables, *tables), aside=again)
    if pin is not made.pin:
        resources.with_retries(lambda: resources.upstream.restore(definition.pin))
    committed = recovered.committed
    strategy = strategy_of(resources.config, resources.upstream.capabilities, definition.pin)
    at, schema, columns, memory = pin.position, pin.schema, tables, ""
    if goes_on:
        at, schema = Position.of(before.position), {name: before.schema}
        columns = tuple(replace(one, schema=before.sink_schemas.get(one.name, one.schema)) for one in tables)
        memory = before.memory
    more = replace(pin, position=at)
    state = strategy.put_back(strategy.thaw(committed.state, committed.splits, recovered.control), more)
    memory = resources.upstream.rejoined(committed.memory, [name], memory)
    return _Made(definition, having(committed, strategy, state, schema, columns, memory))


@contextmanager
def _or_as_before(job: JobDefinition, change: Change, resources: Resources, alone: Resources) -> Iterator[None]:
    """What the block makes for the table is removed again if it cannot join. alone: opened for it."""
    names = [change.table, side_name(change.table)]
    resources.with_retries(lambda: resources.sink.leave(job.name, names))  # of a job that lost its catalog
    try:
        yield
    except BackfillError:
        with suppress(BackfillError):
            resources.sink.leave(job.name, names)
            if alone.upstream.lease is not None:
                alone.upstream.lease.give_up(change.table, change.mark)
        raise


def _pin_of(job: JobDefinition, before: Aside, new: Pin, alone: Resources) -> Pin:
    """The pin that the table has again. new: what is pinned of it now; alone: opened for it.

    Partitions have theirs: they are read once, and go on after the table's last commit. Raises HistoryGone,
    StateConflict where they cannot: its topic is another one, or has lost records that the table lacks.
    """
    if not isinstance(alone.upstream.capabilities.reads, Partitions):
        return new
    pin, position = decode(Pin, before.pin), Position.of(before.position)
    anew = "to read what its topic has now: " + read_anew(
        job, before.table, decode(tuple[SinkTable, ...], before.tables)
    )
    try:
        alone.with_retries(lambda: alone.upstream.restore(pin))
        view = alone.with_retries(lambda: alone.upstream.observe(position, False))
    except StateConflict as gone:
        raise StateConflict(gone.message, anew) from gone
    begun = {**offsets(pin.position), **offsets(position)}
    for partition, first in offsets(view.oldest).items():
        if first > (at := begun.get(partition, 0)):  # one that was added meanwhile is needed from its beginning
            raise HistoryGone(
                f"table {before.table!r}: partition {partition_number(partition)} is needed from offset {at}, "
                f"its log begins at {first}",
                anew,
            )
    return pin


def _has_rows(sink: Sink, job: str, tables: Sequence[SinkTable]) -> bool:
    """Whether a table that has left still has rows: somebody may have dropped or emptied it.

    They are no job's now, so a table with rows is refused where none are expected. One that cannot be read has
    them.
    """
    if sink.extras.copied is None:
        return True
    try:
        sink.check(job, [one for one in tables if not one.side], into_existing=False)
    except SinkInUse:
        return True
    return False


def _goes_on(before: Aside, pin: Pin, alone: Resources) -> bool:
    """Whether the table's log goes on after its last commit. pin: its new one; alone: opened for it.

    It does where the new pin has it begin as the old one had: from there all of it would be applied again, over
    newer rows. Where a pin is of now (tables of a lake), it goes on from the pin, past what has been corrected.
    """
    if not before.position or dict(pin.position) != before.began:
        return False
    alone.with_retries(lambda: alone.upstream.restore(pin))
    if before.memory:
        alone.upstream.recall(before.memory)
    try:
        alone.with_retries(lambda: alone.upstream.observe(Position.of(before.position), False))
    except BadData:
        return True  # it comes next, wherever the log begins
    except (Fatal, HistoryGone):
        return False
    return True


def _forgotten(
    job: JobDefinition, change: Change, recovered: Recovered, resources: Resources, catalog: Catalog
) -> _Made:
    """The job, which no longer remembers a table that was set aside; nor does its upstream.

    Where its rows are to go, it is the job's in the sink again, and to be dropped. Raises what refuses it.
    """
    before, committed = aside_of(job, change.table), None
    if change.with_rows:
        _require_nothing_promised(recovered)
        gone = kept_of(job, change.table)
        require_own_rows(job, change.table, gone)
        with owners_sought(catalog):  # whoever has taken it since keeps it
            resources.with_retries(lambda: resources.sink.prepare(job.name, gone, into_existing=True))
        dropping = {one.target: encode(one) for one in gone}
        committed = replace(recovered.committed, dropping={**recovered.committed.dropping, **dropping})
    let_go(before, resources.config, resources)
    resources.with_retries(lambda: resources.upstream.restore(job.pin))
    return _Made(without_aside(job, change.table), committed)


def aside_of(job: JobDefinition, table: str) -> Aside:
    """The table, which is set aside. Raises UsageError."""
    for one in out(job.aside):
        if one.table == table:
            return one
    raise UsageError(f"table {table!r} is not set aside", command(f"status {job.name}"))


def require_pending(catalog: Catalog, job: str, refill: int) -> None:
    """Raises UsageError for a refill that was cancelled before its table could be put back."""
    found = catalog.refills.of(job, refill)
    if found is None or not found.pending:
        raise UsageError("its refill was cancelled", command(f"status {job}"))


def _without_table(
    job: JobDefinition, change: Change, recovered: Recovered, resources: Resources, catalog: Catalog
) -> _Made:
    """The job without a table. Its rows are dropped where that was asked for. Raises what refuses it."""
    name = change.table
    require_removable(job, resources.upstream)
    _require_nothing_promised(recovered)
    gone = of_table(job, name)
    if change.with_rows:
        require_own_rows(job, name, gone)
    for table in gone:
        require_unqueried(job.name, table.target, catalog)
    definition = having_left(job, name, resources.config)
    resources.with_retries(lambda: resources.upstream.restore(definition.pin))
    with opened_as(from_stored(job.config).of_tables({name}), resources, resources.tell) as alone:
        if (lease := alone.upstream.lease) is not None:
            alone.with_retries(lambda: lease.leave(name, job.pin))
    strategy = strategy_of(resources.config, resources.upstream.capabilities, definition.pin)
    left = (strategy, name, job.tables, gone, change.with_rows)
    return _Made(definition, without_table(recovered.committed, recovered.control, *left))


def _require_nothing_promised(recovered: Recovered) -> None:
    """Raises UsageError while the sink refuses a commit: only another config can help with that."""
    if recovered.prepared is not None:
        raise UsageError("a commit is not finished: the sink does not take it now", "try again once it does")


def _spell(change: Change) -> str:
    if change.derived:
        return "the job goes on with the derived tables that it has now"
    if change.table:
        return "the job goes on with the tables that it has now"
    return f"the job goes on with the new {', '.join(change.keys)}" if change.keys else "the config is as it was"
