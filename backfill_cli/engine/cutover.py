"""`backfill cutover`: the names that people query become views of the job's tables, once every gate is open.

The sink does everything in one transaction, and remembers it; the catalog is only read, and a runner continues.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.lease import user
from backfill_cli.catalog.verified import Verified
from backfill_cli.config import from_stored
from backfill_cli.contracts import Cutover, JobDefinition, Sink, Swap
from backfill_cli.engine.job.aside import require_none
from backfill_cli.engine.job.ownership import require_kept, start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.model.cutover import CutoverReport, Found, Gate, LiveName, Lives
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.units import spell_count, spell_share


def look(job: str, catalog: Catalog) -> CutoverReport:
    """The gates of a cutover as they are now; changes nothing. Raises as `cut_over` does."""
    definition = catalog.definition(job)
    require_none(definition, "a cutover is of all tables of a job")
    with start_over_named(job, catalog), Resources(from_stored(definition.config)) as resources:
        if (told := _by_hand(catalog, definition, resources.sink)) is not None:
            return told
        return _report(catalog, definition, resources.sink, *_cutting(resources.sink, definition))


def _by_hand(catalog: Catalog, definition: JobDefinition, sink: Sink) -> CutoverReport | None:
    """The job's gates, and the statements that give people access to its tables; None for a sink with names."""
    statements = sink.extras.statements
    if statements is None:
        return None
    job, swaps = definition.name, _swaps(definition, in_place=False)
    require_kept(job, catalog, sink)
    row = catalog.job(job)
    gates = (_caught_up(row), _verified(row, [swap.table.name for swap in swaps], False), _alone(row, sink))
    return CutoverReport(job, row.epoch, (), gates, by_hand=tuple(statements(swaps, row.epoch)))


def cut_over(job: str, catalog: Catalog, window_s: float) -> CutoverReport:
    """Each name is a view of its table if every gate is open; otherwise the report says which one is closed.

    window_s: how long `reverse` stays possible. Names that are already cut over stay as they are.
    Raises UsageError for a sink without views, for tables without `live` and for names that cannot be created,
    Held for a job of another catalog, or for one with a runner if the sink cuts over in place.
    """
    definition = catalog.definition(job)
    require_none(definition, "a cutover is of all tables of a job")
    with start_over_named(job, catalog), Resources(from_stored(definition.config)) as resources:
        sink = resources.sink
        told = _by_hand(catalog, definition, sink)
        if told is not None and not told.open:
            return told
        names, swaps = _cutting(sink, definition)
        # Before the job is claimed: a closed gate changes nothing, and a runner that has the job can be seen.
        before = _report(catalog, definition, sink, names, swaps)
        if not (names.in_place if before.cut_over else before.open):
            return before
        with _alone_with(job, catalog, sink, names.in_place) as fence:
            now_ms = wall_clock_ms()
            until_ms = now_ms + int(window_s * 1000)
            if _report(catalog, definition, sink, names, swaps, names.in_place).cut_over:
                if names.in_place:  # completes what a kill near the end left undone
                    names.cut_over(job, swaps, before.epoch, now_ms, until_ms)
                return _report(catalog, definition, sink, names, swaps, names.in_place)
            fence()
            before = _report(catalog, definition, sink, names, swaps, names.in_place)
            if not before.open:
                return before
            names.cut_over(job, swaps, before.epoch, now_ms, until_ms)
            return replace(before, names=_names(swaps, names.live(job, swaps)), changed=True)


def reverse(job: str, catalog: Catalog) -> CutoverReport:
    """Each name is what it was before the cutover. Raises UsageError if there was none, or its time is over."""
    definition = catalog.definition(job)
    with start_over_named(job, catalog), Resources(from_stored(definition.config)) as resources:
        sink = resources.sink
        names, swaps = _cutting(sink, definition)
        require_kept(job, catalog, sink)
        _require_reversible(job, _names(swaps, names.live(job, swaps)), names.in_place)
        with _alone_with(job, catalog, sink, names.in_place) as fence:
            _require_reversible(job, _names(swaps, names.live(job, swaps)), names.in_place)
            fence()
            names.reverse(job, swaps)
            epoch, found = catalog.job(job).epoch, _names(swaps, names.live(job, swaps))
            return CutoverReport(job, epoch, found, (), changed=True, reversed=True)


@contextmanager
def _alone_with(job: str, catalog: Catalog, sink: Sink, in_place: bool) -> Iterator[Callable[[], None]]:
    """Keeps other runners from the job while a table is cut over in place, as their commits then go elsewhere.

    After the yielded function is called, a late runner cannot commit either. Raises Held while a runner has the
    job.
    """
    if not in_place:
        yield lambda: None
        return
    with catalog.lock_job(job) as lock, catalog.claim(job, user(), wall_clock_ms(), lock) as claim:
        require_kept(job, catalog, sink)
        yield lambda: sink.fence(job, claim.token)


def _swaps(definition: JobDefinition, in_place: bool) -> tuple[Swap, ...]:
    """Every table of the job with the name that people query: the table's own name if it is cut over in place."""
    job, config = definition.name, from_stored(definition.config)
    own = [table for table in definition.tables if not table.side]
    named = {table.name: table.live for table in config.tables if table.live is not None}
    if in_place:
        if named:
            raise UsageError(
                f"job {job!r}: tables.live names {min(named.values())!r}, but a sink of type "
                f"{config.tree['sink']['type']!r} switches the table itself to the job's branch: it has no views",
                "remove tables.live from the config; then: " + command("start --config FILE"),
            )
        return tuple(Swap(table, table.target) for table in own)
    lacking = [table.name for table in own if table.name not in named]
    if lacking:
        taken = {table.sink_name.lower() for table in config.tables}  # whose targets cannot change any more
        free = lacking[0] if lacking[0].lower() not in taken else f"{lacking[0]}_live"
        raise UsageError(
            f"job {job!r}: no tables.live, the name that people query, for {', '.join(map(repr, lacking))}",
            f"set tables.live of each table, for example: live = {json.dumps(free, ensure_ascii=False)}; then: "
            + command(f"stop {job} --wait", "start --config FILE", f"cutover {job}"),
        )
    return tuple(Swap(table, named[table.name]) for table in own)


def _cutting(sink: Sink, definition: JobDefinition) -> tuple[Cutover, tuple[Swap, ...]]:
    if sink.extras.statements is not None:
        raise UsageError(
            f"job {definition.name!r}: nothing was changed: the names that people query are not in the sink: it "
            "has only folders, and cannot switch a name atomically",
            "change them where they are defined, once the gates are open, with the statements of: "
            + command(f"cutover {definition.name} --dry-run"),
        )
    cutover = sink.extras.cutover
    if cutover is None:
        kind = from_stored(definition.config).tree["sink"]["type"]
        raise UsageError(
            f"a sink of type {kind!r} has no views, so a cutover is not possible",
            "create the view in the system that people query through, once this finds no difference: "
            + command(f"verify {definition.name}"),
        )
    return cutover, _swaps(definition, cutover.in_place)


def _report(
    catalog: Catalog,
    definition: JobDefinition,
    sink: Sink,
    names: Cutover,
    swaps: Sequence[Swap],
    alone: bool = False,
) -> CutoverReport:
    """alone: this process has the job, so what appears to be its runner is not one."""
    job = definition.name
    require_kept(job, catalog, sink)
    lives = names.live(job, swaps)
    row = catalog.job(job)
    row = replace(row, live=False) if alone else row
    verified = _verified(row, [swap.table.name for swap in swaps], names.in_place)
    gates = (_caught_up(row), verified, _alone(row, sink), _free(lives, names.in_place))
    return CutoverReport(job, row.epoch, _names(swaps, lives), gates)


def _names(swaps: Sequence[Swap], lives: Lives) -> tuple[LiveName, ...]:
    return tuple(LiveName(one.table.name, one.table.target, one.live, lives[one.table.name]) for one in swaps)


def _caught_up(row: JobRow) -> Gate:
    told = row.progress
    if row.phase != Phase.UPSTREAM or told is None or told.converging:
        resume = f"resume {row.name}" if row.live else f"resume {row.name} --detach"
        run = () if row.live and not row.control.paused else (resume,)
        fix = command(*run, f"wait {row.name} --for caught-up")
        return Gate("caught up", False, f"the job is in phase {row.phase}", fix)
    if not row.live and row.state is not JobState.DONE:
        said = f"the job is {'dead' if row.dead else row.shown_state}: how far it is behind is not observed"
        return Gate("caught up", False, said, command(f"resume {row.name} --until caught-up"))
    count = told.pending_epochs
    waiting = f"; {spell_count(count, 'upstream commit')} came since" if count else ""
    return Gate("caught up", True, f"the job is {row.shown_state}, past its snapshot and its log store{waiting}")


def _verified(row: JobRow, tables: Sequence[str], in_place: bool) -> Gate:
    """Equal at exactly this checkpoint: every table, and all keys that could be compared.

    The others have changed since. Under constant writes there are always some, so they are counted and do not
    close the gate: the job's next changes replace their rows, whatever the sink has now.
    """
    name = "verified"
    found = {one.table: one for one in row.verified if one.epoch}
    for table in tables:
        one = found.get(table)
        if one is not None and not one.equal:
            said = f"table {table!r} differs from its upstream at commit {one.epoch}"
            return Gate(name, False, said, _fix_commands(row))
        if one is None or one.share is not None or one.epoch != row.epoch:
            return Gate(name, False, _since(table, one, row.epoch), command(*_verify_commands(row, in_place)))
        if one.not_compared and one.rows == 0:
            changed = spell_count(one.not_compared, "key")
            none = f"table {table!r}: no key was compared: {changed} changed meanwhile"
            return Gate(name, False, none, _compare_commands(row, in_place))
    said = f"every table is equal to its upstream at commit {row.epoch}"
    left_out = sum(found[table].not_compared for table in tables)
    if not left_out:
        return Gate(name, True, said)
    keys = f"{spell_count(left_out, 'key')} changed since and {'was' if left_out == 1 else 'were'} not compared"
    return Gate(name, True, f"{said}; {keys}", _compare_commands(row, in_place))


def _since(table: str, one: Verified | None, epoch: int) -> str:
    if one is None:
        return f"table {table!r} has not been verified"
    if one.share is not None:
        return f"only {spell_share(one.share)} of the keys of table {table!r} were compared"
    return f"table {table!r} was verified at commit {one.epoch}, but the sink is at commit {epoch}"


def _verify_commands(row: JobRow, in_place: bool) -> tuple[str, ...]:
    """The commands that verify the job's last checkpoint, and cut over there if a runner would go on from it."""
    job, verify = row.name, f"verify {row.name}"
    if row.live and in_place:  # only a job without a runner is cut over in place
        again = f"resume {job} --until {row.until}"
        return f"stop {job} --wait", f"resume {job} --until caught-up", verify, f"cutover {job}", again
    if row.live and not row.control.paused:
        return f"pause {job} --wait", verify, f"cutover {job}", f"resume {job}"
    return (verify,)


def _fix_commands(row: JobRow) -> Hint:
    job, fix = row.name, f"verify {row.name} --fix --confirm {row.name}"
    return command(f"stop {job} --wait", fix, f"resume {job}") if row.live else command(fix)


def _compare_commands(row: JobRow, in_place: bool) -> Hint:
    """The commands that compare keys that have changed since the last checkpoint: they need a new one."""
    job, again = row.name, _verify_commands(row, in_place)
    if row.live and row.control.paused and not in_place:
        again = f"resume {job}", f"wait {job} --for caught-up", f"pause {job} --wait", *again
    elif not row.live:
        again = f"resume {job} --until caught-up", *again
    return command(*again) + "   # compares them, too, if nothing writes to the upstream meanwhile"


def _alone(row: JobRow, sink: Sink) -> Gate:
    """The sink is where the catalog says, so nobody else has committed for the job."""
    name = "no other writer"
    other = [table for table, marker in sink.committed(row.name).items() if marker.epoch != row.epoch]
    if other:
        said = f"table {other[0]!r} is not at commit {row.epoch}, the last one in the catalog"
        again = command(f"cutover {row.name}") + "   # again: a commit may have been under way"
        return Gate(name, False, said, again if row.live else command(f"resume {row.name} --until caught-up"))
    return Gate(name, True, f"the sink is at commit {row.epoch}, as the catalog says")


def _free(lives: Lives, in_place: bool = False) -> Gate:
    """Nothing would keep using what is renamed, and no change by others would be lost."""
    for live in lives.values():
        if live.moved is not None and live.found is not Found.OURS:
            refused = UsageError(*live.moved)
            return Gate("nothing left behind", False, refused.message, refused.hint)
    if in_place:
        return Gate("nothing left behind", True, "nobody else committed to the queried tables since the job began")
    behind = [depends for live in lives.values() for depends in live.depends]
    if behind:
        more = f", and {len(behind) - 3} more" if len(behind) > 3 else ""
        return Gate(
            "nothing left behind",
            False,
            f"these use what would be renamed: {'; '.join(behind[:3])}{more}",
            Hint.of("drop them; after the cutover, create views again, and indexes on the job's table"),
        )
    return Gate(
        "nothing left behind", True, "nothing is in the way of the rename, and nothing would be left behind"
    )


def _require_reversible(job: str, names: Sequence[LiveName], in_place: bool) -> None:
    ours = [one for one in names if one.now.found is Found.OURS]
    if not ours:
        raise UsageError(
            f"job {job!r} is not cut over: no name that people query is a view of its tables",
            command(f"cutover {job} --dry-run"),
        )
    until_ms = min(one.now.until_ms or 0 for one in ours)
    if until_ms < wall_clock_ms():
        kept = ", ".join(one.now.kept for one in ours if one.now.kept) or "nothing"
        how = ", ".join(_read_before(one) if in_place else _put_back(one) for one in ours)
        raise UsageError(
            f"job {job!r}: the time for reversing its cutover has expired; what was there before is {kept}",
            f"if those rows are still needed, by hand{'' if in_place else ', in one transaction'}: {how}",
        )
    for one in ours:
        if one.now.moved is not None:
            raise UsageError(*one.now.moved)


def _put_back(name: LiveName) -> str:
    again = "" if name.now.kept is None else f" and rename {name.now.kept} to {name.live}"
    return f"drop the view {name.live}{again}"


def _read_before(name: LiveName) -> str:
    """The table itself stays cut over: it has what the job and others wrote since."""
    return f"read {name.live} VERSION AS OF '{name.now.kept}'" if name.now.kept else f"leave {name.live} as it is"
