"""What a config means for a job: the strategy that fits its upstream, and whether it is the job that exists."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from backfill_cli.catalog import Catalog, waits_first
from backfill_cli.catalog.jobs import sections_in
from backfill_cli.config import JobConfig, from_stored, load
from backfill_cli.config.effective import Difference, differences, moved
from backfill_cli.contracts import Capabilities, JobDefinition, Sink, SinkTable, Source, TableSpec
from backfill_cli.engine.job.columns import require_kept
from backfill_cli.engine.spool.folder import holds_entries, owned
from backfill_cli.errors import (
    START_OVER,
    BackfillError,
    UsageError,
    command,
    in_config,
    sql,
    start_over,
)
from backfill_cli.folders import folder_of
from backfill_cli.model.aside import Section, out
from backfill_cli.model.change import Change
from backfill_cli.model.job import OF_RUNS, Command
from backfill_cli.model.limit import Limit
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies import Strategy
from backfill_cli.strategies.arrangement import ArrangementStrategy
from backfill_cli.strategies.chain import ChainStrategy
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy


@dataclass(frozen=True, slots=True)
class Selected:
    """strategy: its name. why, retention: for `plan`, the reason, and what the upstream must keep for how long."""

    strategy: str
    why: str
    retention: str


def choose(asked: str, upstream: Capabilities) -> Selected:
    """asked: 'auto' or a strategy's name. Raises UsageError for a strategy that this upstream does not support."""
    if asked == "chain" and upstream.partitions is None:
        return _chain(upstream)
    fits = _fitting(upstream)
    if asked not in ("auto", fits.strategy):
        raise UsageError(
            f"job.strategy = {asked!r} does not fit this upstream: {fits.why}",
            f'set it to "{fits.strategy}", or to "auto"',
        )
    return fits


def _chain(upstream: Capabilities) -> Selected:
    reads = "at its pinned position" if upstream.log is None else "in its current state"
    why = f"set in the config: the log is taken into the spool at once, and the snapshot read {reads} meanwhile"
    keeps = "its snapshot until it is read; its log only up to the next commit while the job runs"
    return Selected("chain", why, keeps)


def _fitting(upstream: Capabilities) -> Selected:
    if not upstream.keeps_log:
        raise UsageError(
            "no strategy fits this upstream: it does not keep its changes until they are applied",
            "use an upstream whose change log can be read again: files, Kafka or PostgreSQL",
        )
    if upstream.partitions is not None:
        return Selected("source", "history and live log have the same partitions and offsets", upstream.keeps)
    if upstream.log is not None:
        why = "the upstream shows only its current state, in key order, and keeps its changes"
        return Selected("arrangement", why, upstream.keeps)
    return Selected(
        "snapshot", "the upstream can be read at a pinned position and keeps its changes", upstream.keeps
    )


def require_keys(tables: Sequence[TableSpec], upstream: Capabilities) -> None:
    """Key changes can be followed, or the config says that there are none.

    Raises UsageError naming the tables where neither holds: rows of old keys would stay for ever. In a partitioned
    log, a record is identified by the key that it carries, so the question does not arise.
    """
    open_to_it = [table.name for table in tables if not table.immutable_key]
    if upstream.before_images or upstream.partitions is not None or not open_to_it:
        return
    named = ", ".join(repr(name) for name in open_to_it)
    raise UsageError(
        f"table {named}: the change log does not send the old key with a key change, so the old row would stay "
        "in the sink for ever",
        "if keys never change at the source, declare it: write `immutable_key = true` under its [[tables]]",
    )


def require_whole(config: JobConfig, upstream: Source, sink: Sink) -> None:
    """Nothing needs a column that a change can leave out, except a sink that keeps its present value.

    Called once the upstream is pinned. Raises UsageError naming table, columns and what needs them.
    """
    log = upstream.capabilities.log
    if log is None:
        return
    from backfill_cli.config.transforms import computing, kept

    for table in config.tables:
        lacking = sorted(log.may_lack(table.name))
        shape = config.transform_of(table.name)
        needs = computing(shape, lacking)
        if not sink.capabilities.partial and kept(shape, lacking):
            needs = ["the sink, which writes whole rows"]
        if lacking and needs:
            raise UsageError(
                f"table {table.name!r}: a change may leave out the value of {', '.join(lacking)} if it did "
                f"not change, but it is needed by: {'; '.join(needs)}",
                "make the upstream send whole rows: " + sql(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"),
            )


def require_apart(job: str, upstream: Source, sink: Sink, tables: Sequence[SinkTable]) -> None:
    """No table is in the job twice, however it is spelled: in the upstream, in the sink, or in both.

    Raises UsageError naming the two; the upstream is pinned.
    """
    sources = upstream.extras.places()
    targets = sink.places(tables)
    if (twins := _twins(sources)) is not None:
        raise UsageError(
            f"tables {twins[0]!r} and {twins[1]!r} are the same table of the upstream, or share rows of it",
            "remove one of them from [[tables]]; a second copy of a table needs a job of its own",
        )
    if (twins := _twins(targets)) is not None:
        raise UsageError(
            f"tables {twins[0]!r} and {twins[1]!r} have the same target",
            in_config(
                'give each a target of its own: {table} in sink.table, such as "lake/{table}", or tables.target'
            ),
        )
    for target, places in targets.items():
        for source, held in sources.items():
            if held & places:
                raise UsageError(
                    f"the target of table {target!r} is the upstream's own table {source!r}: every row written "
                    "to it would be a new change to follow",
                    in_config("set another schema, database or topic in [sink], or another tables.target"),
                )
    state = None if sink.extras.state is None else sink.extras.state(job)
    for source, held in sources.items():
        if state is not None and state.place in held:
            raise UsageError(
                f"{state.what}, which keeps the state of job {job!r}, is the upstream's own table {source!r}: "
                "every commit would be a new change to follow",
                in_config(f"set another {state.at}"),
            )


def _twins(places: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """Two tables that have a place in common; None if there are none."""
    owner: dict[str, str] = {}
    for table, held in places.items():
        for place in sorted(held):
            if (other := owner.setdefault(place, table)) != table:
                return other, table
    return None


def nothing_follows(job: str, upstream: Capabilities, until: str | None = None) -> Iterator[str]:
    """What to know about a job that would follow nothing, and what to do; empty for any other job.

    until: what it was started with; None if not known yet.
    """
    if upstream.follows or until == "caught-up":
        return
    ends = "ends by itself" if until is None else f"ends by itself; backfill stop {job} ends this one"
    yield (
        "there is nothing to follow: the config names no changes (upstream.changes), so once the snapshot is read "
        f"the job waits until it is stopped; with --until caught-up it {ends}"
    )


def constraints(strategy: str, upstream: Capabilities, transactional: bool) -> tuple[bool, str]:
    """Whether constraints across tables hold at every checkpoint, and why. transactional: the sink's property."""
    if strategy == "chain" and upstream.log is not None:
        return False, (
            "rows are read at different times and changes applied later: until the sink has converged, unique and "
            "foreign keys of its tables do not hold either (create them once the job is caught up)"
        )
    if not upstream.one_log:
        return False, "each table has its own change log"
    if not transactional:
        return False, "the sink commits its tables one after the other"
    return True, "one log orders all tables"


def strategy_of(config: JobConfig, upstream: Capabilities, pin: Pin) -> Strategy[Any]:
    """The strategy of a job, for its pin."""
    strategy = choose(config.job.strategy, upstream).strategy
    if strategy == "arrangement":
        return ArrangementStrategy(pin.splits)
    if strategy == "chain":
        return ChainStrategy(pin.splits, current=upstream.log is not None)
    if upstream.partitions is not None:
        return SourceStrategy(pin.splits, upstream.partitions.accepts_gap)
    return SnapshotStrategy(pin.splits)


def present(job: JobDefinition | None, config: JobConfig) -> JobConfig:
    """The config without the tables that are set aside: that with which the job goes on."""
    aside = {one.table for one in out(job.aside)} if job is not None else set()
    named = {one.name for one in config.tables}
    return config.of_tables(named - aside) if aside & named and named - aside else config


def beside_aside(job: JobDefinition, config: JobConfig) -> JobConfig:
    """The job's config, with those tables that are set aside of which `config` says something, as they left."""
    before, named = from_stored(job.config), {one.name for one in config.tables}
    for one in out(job.aside):
        if one.table in named:
            before = before.with_table(json.loads(one.section), json.loads(one.options))
    return before


def sections_of(job: JobDefinition, config: JobConfig) -> tuple[Section, ...]:
    """What this config says of tables that are set aside: they come back so.

    Raises UsageError if one would give another result then.
    """
    named = {one["name"]: one for one in config.tree["tables"]}
    aside = [one.table for one in out(job.aside) if one.table in named]
    if not aside:
        return ()
    require_same(replace(job, config=beside_aside(job, config).stored()), config)

    def told(part: object) -> str:
        return json.dumps(part, ensure_ascii=False)

    return tuple((table, told(named[table]), told(config.options_by_table(table))) for table in aside)


_HOW_WRITTEN = (
    *(
        f"upstream.{side}{option}"
        for side in ("changes.", "changes.value.", "value.")
        for option in ("decimals", "timestamps")
    ),
    "upstream.changes.file_format",
    *(f"upstream.changes.csv.{option}" for option in ("header", "quote", "escape", "multi_line")),
)
"""How changes are written: may be corrected until one was read with it, and said where nothing was said."""


def require_as_now(job: JobDefinition, config: JobConfig, catalog: Catalog, live: bool) -> None:
    """As `require_same`, of a job of this catalog. live: another runner has it.

    Raises Held where the config differs and a command waits that changes what the job is.
    """
    try:
        has_been_read = partial(catalog.change_logs.has_been_read, job.name)
        require_same(job, config, has_been_read, left=lambda: staying(catalog.redefined(job.name)))
    except UsageError as refused:
        if first := [one for one in catalog.job(job.name).waiting if one.verb in OF_RUNS]:
            raise waits_first(job.name, first[0], live) from refused
        raise


def staying(commands: Iterable[Command]) -> dict[str, str]:
    """By derived table that has left once these commands are taken, in order, the target where its rows stay."""
    left = dict[str, str]()
    for one in commands:
        if one.derived:
            change = Change.read(one.payload)
            for name in change.derived:
                left.pop(name, None)
            if not change.with_rows:
                left.update(zip(change.derived, change.targets, strict=False))
    return left


def require_same(
    job: JobDefinition,
    config: JobConfig,
    has_read_changes: Callable[[], bool] = lambda: True,
    known: bool = True,
    left: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """The config leads to the same result as the job's own; spool and staged files are where the config says.

    has_read_changes: whether some change was decoded with the job's own config, see _HOW_WRITTEN. known: the
    catalog has the job, not the sink alone. left: by derived table that has left the job, where its rows stay.
    Raises UsageError with every difference.
    """
    name, before = job.name, from_stored(job.config)
    had = before.fingerprint()
    if holds_entries(before.spool.path, name) and not owned(config.spool.path, name):
        raise UsageError(
            f"job {name!r}: spool.path is now {config.spool.path}, but the spool is in {before.spool.path}",
            in_config(f"move {before.spool.path}/{name} to {config.spool.path}/{name}, or set spool.path back"),
        )
    staged, staging = before.job.staging, config.job.staging
    moved_along = _folder_before(staged, staging, config) is not None
    if moved_along and os.path.isdir(f"{staged}/{name}") and not os.path.lexists(f"{staging}/{name}"):
        raise UsageError(
            f"job {name!r}: job.staging is now {staging}, but the job's staged files are in {staged}: relative "
            "paths belong to the config's folder",
            in_config(
                f"set job.staging = {json.dumps(staged, ensure_ascii=False)}; or move {staged}/{name} to "
                f"{staging}/{name}"
            ),
        )

    def found_in(had: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
        return [
            one
            for one in differences(had, now)
            if one.path not in _HOW_WRITTEN or (one.before is not None and has_read_changes())
        ]

    now = config.fingerprint()
    found = found_in(had, now)
    if found:
        require_kept(job, config, config.file or "job.toml")
        both = [table.name for table in config.tables if table.name in had["tables"]]
        parts = [one.of_tables(both).fingerprint() for one in (before, config)] if both else [had, now]
        if not found_in(*({key: part for key, part in one.items() if key != "derived"} for one in parts)):
            _require_refreshed(job, before, config)
            _refuse_others(name, had, config, known, left())
        raise _different(name, found, moved(had, now), known)


def _require_refreshed(job: JobDefinition, before: JobConfig, config: JobConfig) -> None:
    """Each derived table that was refreshed in full, and is not now, can be kept by its changes.

    Raises UsageError naming the piece of its SELECT that cannot: `add --replace` would. Of a config with further
    tables, which its SELECTs can read, only `add` tells.
    """
    full = {one.name for one in before.derived if one.refresh is not None}
    lost = any(one.name in full and one.refresh is None for one in config.derived)
    if lost and {one.name for one in config.tables} <= {one.name for one in before.tables}:
        derives = config.open_sink().extras.derives
        assert derives is not None, "a config with derived tables has been checked"
        derives.reads([one.value for one in config.derived], (*job.tables, *job.beside))


def _refuse_others(
    name: str, had: Mapping[str, Any], config: JobConfig, known: bool, left: Mapping[str, str]
) -> None:
    """Raises UsageError with the commands by which tables, and derived ones, join, change and leave, if there are
    some. known: the catalog has the job. left: what `require_same` has."""
    now = config.fingerprint()
    tables, derived = had["tables"], had.get("derived", {})
    file = shlex.quote(config.file) if config.file else "job.toml"
    joins, leaves = _others(tables, now["tables"])
    wanted = now.get("derived", {})
    more, fewer = _others(derived, wanted)
    changed = [one for one in more if one in fewer]
    if not (joins or leaves or more or fewer):
        return
    moved = [one for one in changed if derived[one]["target"] != wanted[one]["target"]]
    out = [one for one in _by_reads(derived) if one in moved or one not in wanted]
    # those that read one which leaves to come back elsewhere leave with it, and come back where they were
    along = [one for one in _readers(derived, out) if one not in out]
    lines = []
    if gone := [one for one in reversed(_by_reads(derived)) if one in (*out, *along)]:
        lines.append(f"remove {name}{named(gone)}")
    lines += [f"add {name} --table {shlex.quote(one)} --config {file}" for one in joins]
    into = [one for one in more if left.get(one) == wanted[one]["target"] and one not in along]
    if into:
        lines.append(f"add {name}{named(into)} --config {file} --into-existing")
    if come := [one for one in more if one not in (*along, *into)]:
        again = " --replace" if set(come) & set(changed) - set(moved) else ""
        lines.append(f"add {name}{named(come)} --config {file}{again}")
    if back := [one for one in _by_reads(wanted) if one in along]:
        lines.append(f"add {name}{named(back)} --config {file} --into-existing")
    lines += [f"remove {name} --table {shlex.quote(one)}" for one in leaves]
    enter, gone = [*joins, *(one for one in more if one not in changed)], [*leaves, *(set(fewer) - set(changed))]
    told = ((enter, "would join it"), (sorted(gone), "would leave it"), (changed, "would be another one"))
    said = [f"{', '.join(names)} {does}" for names, does in told if names]
    kind = "tables" if joins or leaves else "derived tables"
    stay = f"; or add the sections of {', '.join(sorted(gone))} to {file}, for them to stay" if gone else ""
    raise UsageError(
        f"job {name!r} exists, and this config has other {kind}: {', and '.join(said)}",
        command(*lines) + stay if known else "undo these changes, and make them once the job is resumed",
    )


def _others(had: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names of sections that are new or differ now, each after those that its SELECT names; and of those that
    are gone or differ, each before them. Tables have no SELECT: they are new or gone.
    """
    same = {one for one in had.keys() & now.keys() if had[one] == now[one] or "sql" not in now[one]}
    comes, goes = _by_reads(now), reversed(_by_reads(had))
    return [one for one in comes if one not in same], [one for one in goes if one not in same]


def named(derived: Sequence[str]) -> str:
    """The options that name these derived tables."""
    return "".join(f" --derived {shlex.quote(one)}" for one in derived)


def _readers(sections: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Those whose SELECTs name one of these, or one that does; not these."""
    found: list[str] = []
    for one in _by_reads(sections):
        words = set(re.findall(r"\w+", sections[one].get("sql", "")))
        if one not in names and words & {other.rpartition(".")[2] for other in (*names, *found)}:
            found.append(one)
    return found


def _by_reads(sections: Mapping[str, Any]) -> list[str]:
    """In the order of the config, but each after those that its SELECT names."""
    found: list[str] = []

    def put(name: str, reading: frozenset[str]) -> None:
        words = set(re.findall(r"\w+", sections[name].get("sql", "")))
        for other in sections.keys() - reading:
            if other.rpartition(".")[2] in words:
                put(other, reading | {other})
        found.extend([name] * (name not in found))

    for name in sections:
        put(name, frozenset({name}))
    return found


def _different(name: str, found: Sequence[Difference], folder: tuple[str, str] | None, known: bool) -> UsageError:
    """The error for a config that leads to another result. folder: that was moved perhaps, and its new path."""
    over = START_OVER if known else start_over(name, "--sink job.toml", "--with-rows")
    hint = (
        "undo these changes (only on_error, throttle, rate, barrier, catch_up, retry, spool, spark, hooks, "
        "guards, staging, live, and what a hint asked you to add may change), or name another job, or " + over
    )
    if folder is not None and os.path.isdir(folder[1]) and not os.path.lexists(folder[0]):
        forget = (
            "forget the job here: "
            + command(f"drop {name} --without-sink --confirm {name}")
            + "; start then names the command that drops its rows"
        )
        back = shlex.join(["mv", folder[1], folder[0]])
        hint = f"{folder[0]} is gone: if it was moved here, move it back: {back}; or " + (
            forget if known else over
        )
    return UsageError(
        f"job {name!r} exists, and this config would produce a different result. These options differ:\n  "
        + "\n  ".join(map(str, found)),
        hint,
    )


def require_same_strategy(job: JobDefinition, config: JobConfig, upstream: Source) -> None:
    """The config leads to the job's own strategy. Raises UsageError if it leads to another."""
    asked = choose(config.job.strategy, upstream.capabilities).strategy
    if asked != job.strategy:
        raise UsageError(
            f"job {job.name!r} exists with strategy {job.strategy!r}, but this config leads to {asked!r}",
            f'set job.strategy = "{job.strategy}" again, or name another job, or ' + START_OVER,
        )


def edited(job: JobDefinition) -> Iterator[Limit]:
    """What a `resume` says if the file that the job's config was read from differs from it now.

    A file that is gone, or that cannot be read, is no reason: a job is resumed without it.
    """
    if not os.path.isfile(job.config_file):  # a pipe: somebody else's now, and reading it would wait for them
        return
    file = Path(job.config_file)

    def sections(name: str) -> dict[str, dict[str, Any]]:
        return sections_in(job.config, job.aside) if name == job.name else {}

    try:
        now = load(file, of_job=sections)
        folders = (_folder_before(one.before, one.after, now) for one in _changed(job.config, now))
        if (before := next(filter(None, folders), None)) is not None:
            now = load(file, before, of_job=sections)
    except BackfillError:
        return
    changed = changed_keys(beside_aside(job, now).stored(), now) if now.job.name == job.name else ()
    if changed:
        said = f"resume does not read {job.config_file}, changed since the last start: {', '.join(changed)}"
        yield Limit(said, hint=command(f"set {job.name} --config {shlex.quote(job.config_file)}"), to="use it")


def _folder_before(was: object, now: object, config: JobConfig) -> Path | None:
    """The folder that relative paths of the config belonged to, if that explains an option's values; else None.

    That was the current folder, for jobs of versions before it was the config's.
    """
    if not (config.file and isinstance(was, str) and isinstance(now, str)) or was == now:
        return None
    folder = folder_of(Path(config.file))
    if not Path(now).is_relative_to(folder):
        return None
    before, sep, more = was.rpartition(f"/{Path(now).relative_to(folder)}")
    return Path(before or "/") if sep and not more else None


def changed_keys(stored: str, config: JobConfig) -> list[str]:
    """The keys of the config that differ from the stored one, without values: they can be long or confidential."""
    return [one.path for one in _changed(stored, config)]


def changed_rates(stored: str, config: JobConfig) -> tuple[tuple[str, float | None], ...]:
    """The tables whose own rate differs from that in the stored config, with what it is now."""
    before = {one["name"]: one.get("rate") for one in json.loads(stored)["tables"]}
    return tuple((one.name, one.rate) for one in config.tables if one.rate != before.get(one.name))


def _changed(stored: str, config: JobConfig) -> list[Difference]:
    """What differs, whatever the order of the tables: one that joined, or was put back, is the last in the job.

    Of a table that both have, its options: `tables.orders.rate`; of one that joins or leaves, its section.
    """
    trees = json.loads(stored), json.loads(config.stored())
    had, has = ({one["name"]: one for one in tree["tables"]} for tree in trees)
    both = had.keys() & has.keys()

    def by_name(sections: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one if name in both else [one] for name, one in sections.items()}

    before, after = trees
    return differences({**before, "tables": by_name(had)}, {**after, "tables": by_name(has)})
