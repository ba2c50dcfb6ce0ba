"""A job's config: the user's TOML file, checked as a whole, secrets kept as references and every path absolute."""

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import tomli
from pydantic import BaseModel, ValidationError

from backfill_cli.config import by_table
from backfill_cli.config.columns import keep_faults, with_columns
from backfill_cli.config.connectors import known, of_one_system, options_of, sink_of, upstream_of
from backfill_cli.config.derived import DerivedSection
from backfill_cli.config.faults import spell_faults, spell_path, table_faults
from backfill_cli.config.loading import (
    absolute,
    hook_faults,
    named_tables,
    with_event_key,
    with_primary_keys,
    without_key,
)
from backfill_cli.config.secrets import leaves, reference_faults, resolve, secret_faults
from backfill_cli.config.sections import (
    JOB_NAME,
    Barrier,
    CatchUp,
    GuardSection,
    Hooks,
    Job,
    JobFile,
    Retry,
    Spark,
    SpoolSection,
    Table,
    Throttle,
    Transform,
)
from backfill_cli.contracts import (
    BrokenContract,
    Capabilities,
    Extras,
    Gauge,
    Sink,
    SinkCapabilities,
    SinkExtras,
    Source,
    TableSpec,
    UpstreamConnector,
)
from backfill_cli.contracts.options import STORED
from backfill_cli.errors import ConfigError, Hint, UsageError, command
from backfill_cli.folders import folder_of
from backfill_cli.model.job import Control
from backfill_cli.model.pushdown import Condition, Wanted
from backfill_cli.model.secret_forms import REFERENCE

__all__ = ["JobConfig", "load", "resolve"]

Tree = dict[str, Any]
OpensGauge = Callable[[Any, str, float], Gauge]
Opened = TypeVar("Opened")
S3, ON_S3 = "s3", ("s3://", "s3a://")
"""What `spark.table_formats` calls the jars for an object store, and how URIs there begin."""
_MAY_HOLD_REFERENCES = ("upstream", "sink", "spark")


@dataclass(frozen=True)
class JobConfig:
    """A config without faults. upstream, sink: their connectors' options, references unresolved.

    tree: the content of the file as it is stored: references kept, paths absolute. file: its absolute path; empty
    for a config that was read from storage. only: see `limited`.
    """

    tree: Tree
    job: Job
    upstream: BaseModel
    tables: tuple[Table, ...]
    sink: BaseModel
    transform: Transform
    barrier: Barrier
    throttle: Throttle
    catch_up: CatchUp
    retry: Retry
    spool: SpoolSection
    spark: Spark
    hooks: Hooks
    guards: tuple[GuardSection, ...] = ()
    derived: tuple[DerivedSection, ...] = ()
    file: str = field(default="", compare=False)
    only: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict, compare=False)

    def limited(self, table: str, conditions: tuple[Condition, ...]) -> "JobConfig":
        """The config for a reader that needs only the rows of a table that meet these, by its source's names."""
        return replace(self, only={**self.only, table: conditions})

    def with_table(self, section: Tree, options: Tree) -> "JobConfig":
        """The config with another table; its key is the primary key if it names none. Raises ConfigError.

        options: the table's part of the upstream's, see `options_by_table`.
        """
        told, model = [*self.tree["tables"], section], type(self.upstream)
        upstream = by_table.joined(model, self.tree["upstream"], self._names, options)
        return self._of_tables(told, upstream, f"table {section['name']!r}")

    def of_tables(self, names: Collection[str]) -> "JobConfig":
        """The config with these of its tables only."""
        told = [one for one in self.tree["tables"] if one["name"] in names]
        upstream = by_table.only(type(self.upstream), self.tree["upstream"], self._names, names)
        return self._of_tables(told, upstream, self.file)

    def with_derived(self, *sections: Tree) -> "JobConfig":
        """The config with other derived tables, each instead of one of its name. Raises ConfigError."""
        told = {one["name"]: one for one in (*self.tree.get("derived", ()), *sections)}
        return self._of_derived(list(told.values()))

    def without_derived(self, names: Collection[str]) -> "JobConfig":
        """The config without these derived tables."""
        return self._of_derived([one for one in self.tree.get("derived", ()) if one["name"] not in names])

    def _of_derived(self, told: list[Tree]) -> "JobConfig":
        tree = {key: part for key, part in self.tree.items() if key != "derived"}
        tree |= {"derived": told} if told else {}
        return replace(_checked(tree, self.file, [], "correct its [[derived]]", STORED), file=self.file)

    def options_by_table(self, name: str) -> Tree:
        """The part of the upstream's options that is of this table alone: by the option's path, its values."""
        model = type(self.upstream)
        return by_table.given(model, by_table.only(model, self.tree["upstream"], self._names, {name}))

    @property
    def _names(self) -> list[str]:
        return [table.name for table in self.tables]

    def _of_tables(self, told: list[Tree], upstream: Tree, source: str) -> "JobConfig":
        hint = "name its key and options under its [[tables]] in the config"
        tree = {**self.tree, "upstream": upstream, "tables": told}
        return replace(_checked(tree, source, [], hint, STORED), file=self.file)

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    @property
    def control(self) -> Control:
        """The control with which a job begins that no command has changed."""
        rates = sorted((table.name, table.rate) for table in self.tables if table.rate is not None)
        return Control(rate=self.throttle.rate, tables=tuple(rates))

    def sets_aside(self, name: str) -> bool:
        """Whether the job goes on without this table after an error of it alone."""
        return (self.table(name).on_error or self.job.on_error) == "set-aside"

    def transform_of(self, name: str) -> Transform:
        """A table's own transform, else the common one."""
        return self.table(name).transform or self.transform

    def sink_key(self, name: str) -> tuple[str, ...]:
        """A table's key columns as the sink names them."""
        table, shape = self.table(name), self.transform_of(name)
        if shape.select is None:
            return tuple(table.key)
        from backfill_cli.config.transforms import sink_key

        return sink_key(table, shape)

    def table_specs(self) -> tuple[TableSpec, ...]:
        """The tables as the upstream sees them."""
        return tuple(self._spec(one, self.transform_of(one.name)) for one in self.tables)

    def _spec(self, table: Table, transform: Transform) -> TableSpec:
        key, filtered = tuple(table.key), transform.where is not None
        only = self.only.get(table.name, ())
        if transform.is_empty:
            domain = sink_of(self.tree["sink"]).domain(self.sink)
            return TableSpec(table.name, key, table.immutable_key, filtered, domain, Wanted(where=only))
        from backfill_cli.config.pushdown import wanted

        need = wanted(transform, key)
        need = replace(need, where=(*need.where, *only))
        if any(name.startswith("spark.sql.legacy.") for name in self.spark.conf):
            need = replace(need, where=())  # Spark may compare otherwise than it does by itself
        return TableSpec(table.name, key, table.immutable_key, filtered, wanted=need)

    def open_upstream(self) -> Source:
        """The upstream, secrets resolved. Raises ConfigError for a reference that cannot be resolved."""
        return self._opened(resolve(self.upstream, "upstream", self._context))

    def unreached_upstream(self) -> Source:
        """The upstream with its references as they are written: for what it can say without being reached."""
        return self._opened(self.upstream)

    def _opened(self, options: Any) -> Source:
        says = {"capabilities": Capabilities, "extras": Extras}
        open_it = upstream_of(self.tree["upstream"]).open
        return self._plugged("upstream", Source, says, lambda: open_it(options, self.table_specs()))

    def open_sink(self) -> Sink:
        """The sink, secrets resolved. Raises ConfigError for a reference that cannot be resolved."""
        options = resolve(self.sink, "sink", self._context)
        says = {"capabilities": SinkCapabilities, "extras": SinkExtras}
        return self._plugged("sink", Sink, says, lambda: sink_of(self.tree["sink"]).open(options))

    def open_gauge(self, guard: GuardSection) -> Gauge | None:
        """What asks upstream or sink for a guard, secrets resolved; None for a guard that asks neither."""
        query, opens = _asks(self.tree, guard)
        if query is None or opens is None:
            return None
        return opens(resolve(getattr(self, guard.side), guard.side, self._context), query, guard.timeout_s)

    def _plugged(
        self, side: str, contract: type, says: Mapping[str, type], opening: Callable[[], Opened]
    ) -> Opened:
        """Raises UsageError for a plug-in that is no subclass of its contract, or leaves out what that demands.

        says: the attributes in which it says of itself what it can do, with their types.
        """
        kind = self.tree[side].get("type")
        try:
            opened = opening()
        except BrokenContract as error:
            error.message = f"{side} type {kind!r}: {error.message}"
            raise
        if not isinstance(opened, contract):
            raise UsageError(
                f"{side} type {kind!r} opens a {type(opened).__name__}, which is no {contract.__name__}",
                "update its package",
            )
        for name, wanted in says.items():
            told = getattr(opened, name, None)
            if not isinstance(told, wanted):
                raise UsageError(
                    f"{side} type {kind!r}: {type(opened).__name__}.{name} is {told!r}, no {wanted.__name__}",
                    f"correct the plug-in: {name} = {wanted.__name__}(…)",
                )
        return opened

    @property
    def _context(self) -> Any:
        return None if self.file else STORED

    def table_formats(self) -> tuple[str, ...]:
        """The formats of lake tables on either side, for which Spark needs jars."""
        sides = (*upstream_of(self.tree["upstream"]).formats, *sink_of(self.tree["sink"]).formats)
        return (*sides, *((S3,) if self._is_on_s3() else ()))

    def _is_on_s3(self) -> bool:
        """Whether a path of either side, or a setting of a catalog, is on S3."""
        parts = (("upstream", self.upstream), ("sink", self.sink), ("spark", self.spark))
        told = (resolve(options, part, self._context).model_dump(mode="json") for part, options in parts)
        return any(str(value).startswith(ON_S3) for options in told for _, value in leaves(options))

    def spark_conf(self) -> dict[str, str]:
        """The user's Spark settings, secrets resolved."""
        return dict(resolve(self.spark, "spark").conf)

    def stored(self) -> str:
        """JSON for the catalog: references kept, paths absolute. `from_stored` reads it."""
        return json.dumps(self.tree, ensure_ascii=False)

    def fingerprint(self) -> Tree:
        """What determines the result, and so must not change during a job's life: JSON, without secrets."""
        upstream, sink = self.tree["upstream"], self.tree["sink"]
        kind = {"type": upstream["type"]} if "type" in upstream else {}
        parts = {
            "upstream": kind | dict(upstream_of(upstream).fingerprint(self.upstream)),
            "sink": {"type": sink["type"], **sink_of(sink).fingerprint(self.sink)},
            "tables": {table.name: self._table_fingerprint(table) for table in self.tables},
        }
        if self.derived:  # older jobs have none, and no word of it in their fingerprints
            parts["derived"] = {
                one.name: {"target": one.sink_name, "key": one.key, "sql": one.sql}
                | ({"refresh": one.refresh} if one.refresh else {})  # older ones have no word of it
                for one in self.derived
            }
        plain: Tree = json.loads(json.dumps(parts))
        return plain

    def _table_fingerprint(self, table: Table) -> Tree:
        told = table.model_dump(include={"key", "immutable_key"})
        transform = self.transform_of(table.name).model_dump(exclude_none=True)
        return {**told, "target": table.sink_name, "transform": transform}


Keys = Mapping[str, Sequence[str]]
Asking = Callable[[Callable[[], Keys], Retry], Keys]
"""Asks an upstream for its tables' keys: what it does while that does not answer."""


OfJob = Callable[[str], Mapping[str, Tree]]
"""The sections of a job's tables, by its name; empty if there is none yet."""


def _no_job(_job: str) -> Mapping[str, Tree]:
    return {}


def _at_once(ask: Callable[[], Keys], _retry: Retry) -> Keys:
    return ask()


def load(path: Path, folder: Path | None = None, asking: Asking = _at_once, of_job: OfJob = _no_job) -> JobConfig:
    """The config of a TOML file. Raises ConfigError with all its faults.

    folder: that its relative paths belong to, if not its own. asking: for keys that the file does not name.
    of_job: what the job has of them: the key, where the upstream shows none now, and the columns that are kept.
    """
    settled = absolute(of_one_system(read(path)), folder or folder_of(path))
    faults = _written_secrets(settled) + hook_faults(settled) + _spool_faults(settled)
    hint = "correct the faults listed, then: " + command("plan --config FILE")
    found = _checked(settled, str(path), faults, hint, asking=asking, of_job=of_job)
    return replace(found, file=str(path.absolute()))


def read(path: Path) -> Tree:
    """The content of a TOML file, unchanged. Raises ConfigError if it cannot be read."""
    try:
        return tomli.loads(path.read_text("utf-8"))
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        reason = "the file does not exist" if gone else (error.strerror or "cannot be read").lower()
        begin = command(f"init {shlex.quote(str(path))}") + "   # writes one to start from"
        raise ConfigError(str(path), [reason], begin if gone else Hint()) from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), ["not UTF-8 text"]) from None
    except tomli.TOMLDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(str(path), [f"{place}: not TOML: {error.msg}"]) from None


def from_stored(stored: str) -> JobConfig:
    """The config that `JobConfig.stored` wrote. Raises ConfigError if this version no longer accepts it."""
    tree = json.loads(stored)
    section = tree.get("job")
    name = str(section.get("name")) if isinstance(section, dict) else ""
    job = name if JOB_NAME.fullmatch(name) else "job"
    hint = (
        "install the version that accepted it; or forget the job here, and then in the sink and the "
        "upstream of a config that is accepted: "
        + command(
            f"drop {job} --without-sink --without-upstream --confirm {job}",
            f"drop {job} --sink job.toml --confirm {job}",
        )
    )
    return _checked(tree, "the stored config", [], hint, STORED)  # a secret in it has already been stored


def stored_hooks(stored: str) -> Hooks:
    """The hooks of a stored config, without checking the rest of it."""
    return Hooks.model_validate(json.loads(stored).get("hooks", {}))


def _checked(
    tree: Tree,
    source: str,
    faults: list[str],
    hint: Hint | str,
    context: Any = None,
    asking: Asking = _at_once,
    of_job: OfJob = _no_job,
) -> JobConfig:
    for part in _MAY_HOLD_REFERENCES:
        faults += reference_faults(tree.get(part), (part,))
    faults += _misplaced_references(tree)
    tree = of_one_system(tree)
    upstream = options_of("upstream", tree.get("upstream"), faults, context)
    sink = options_of("sink", tree.get("sink"), faults, context)
    if upstream is not None:
        tree = with_event_key(tree, upstream_of(tree["upstream"]).event_key(upstream))
    unkeyed = _unkeyed(tree)
    file = _file(with_primary_keys(tree, dict.fromkeys(unkeyed, ("key",))), faults, context)
    if upstream is not None and file is not None and unkeyed and not faults:
        asked = partial(_primary_keys, tree, upstream, unkeyed)
        tree = with_primary_keys(tree, asking(asked, file.retry))
        if without_key(tree):  # a quiet table can be missing in a sample
            told = of_job(file.job.name)
            tree = with_primary_keys(tree, {name: one["key"] for name, one in told.items() if one.get("key")})
        file = _file(tree, faults, context)
    if context is not STORED and file is not None and sink is not None and not faults:
        tree, file = _with_columns(tree, file, faults, context, of_job)
    faults += table_faults(tree)
    faults += _folder_faults(file) if file is not None else []
    faults += (
        _guard_faults(tree, file.guards) if file is not None and upstream is not None and sink is not None else []
    )
    if file is None or upstream is None or sink is None or faults:
        raise ConfigError(source, faults, hint)
    sections = {name: getattr(file, name) for name in JobFile.model_fields}
    lists = {name: tuple(getattr(file, name)) for name in ("tables", "guards", "derived")}
    return JobConfig(tree, **{**sections, **lists, "upstream": upstream, "sink": sink})


def _file(tree: Tree, faults: list[str], context: Any) -> JobFile | None:
    """The config's own sections; None with the faults noted. context: STORED for a stored config."""
    try:
        return JobFile.model_validate(tree, context=context)
    except ValidationError as error:
        faults += spell_faults(error, JobFile, tree)
        return None


def _with_columns(
    tree: Tree, file: JobFile, faults: list[str], context: Any, of_job: OfJob
) -> tuple[Tree, JobFile | None]:
    """The config, with the columns that are kept of tables as their select lists; faults are noted."""
    if all(table.keep is None for table in file.tables):
        return tree, file
    dialect = sink_of(tree["sink"]).dialect
    faults += keep_faults(tree, file, dialect)
    if dialect is None or faults:
        return tree, file
    tree, found = with_columns(tree, file, dialect, of_job(file.job.name))
    faults += found
    return tree, _file(tree, faults, context)


def _unkeyed(tree: Tree) -> list[str]:
    """The tables without a key in the config, if the upstream knows their primary keys."""
    connector = known("upstream", tree.get("upstream"))
    return without_key(tree) if isinstance(connector, UpstreamConnector) and connector.primary_keys else []


def _primary_keys(tree: Tree, upstream: BaseModel, tables: list[str]) -> Mapping[str, Sequence[str]]:
    """The tables' primary keys, read from the upstream."""
    keys_of = upstream_of(tree["upstream"]).primary_keys
    assert keys_of is not None
    return keys_of(resolve(upstream, "upstream"), tables, named_tables(tree))


def _written_secrets(tree: Tree) -> list[str]:
    connectors = {part: known(part, tree.get(part)) for part in ("upstream", "sink")}
    options = {part: None if found is None else found.options for part, found in connectors.items()}
    models: dict[str, type[BaseModel] | None] = {**options, "spark": Spark}
    return [fault for part, model in models.items() for fault in secret_faults(part, tree.get(part), model)]


def _spool_faults(tree: Tree) -> list[str]:
    """The fault of a spool that the strategy does not use."""
    job = tree.get("job")
    chain = isinstance(job, dict) and job.get("strategy") == "chain"
    return ['spool: only strategy chain uses one: set strategy = "chain" in [job]'] * (
        "spool" in tree and not chain
    )


def _folder_faults(file: JobFile) -> list[str]:
    """Spool and staging must not contain each other: each is cleaned up on its own."""
    spool, staging = Path(file.spool.path), Path(file.job.staging)
    if file.job.strategy == "chain" and (spool.is_relative_to(staging) or staging.is_relative_to(spool)):
        return [f"spool.path: {spool} and job.staging ({staging}) must be two folders, neither inside the other"]
    return []


def _asks(tree: Tree, guard: GuardSection) -> tuple[str | None, OpensGauge | None]:
    """What a guard asks upstream or sink, and what opens a connection for that; None for what there is not."""
    source = upstream_of(tree["upstream"])
    query = guard.query if guard.kind == "sql" else source.gauges.get(guard.kind)
    return query, source.gauge if guard.side == "upstream" else sink_of(tree["sink"]).gauge


def _guard_faults(tree: Tree, guards: Sequence[GuardSection]) -> list[str]:
    """Guards that ask a system which cannot be asked."""
    faults = []
    for index, guard in enumerate(guards):
        if guard.asks_systems and None in _asks(tree, guard):
            said = (
                f"this {guard.on} answers no SQL for guards"
                if guard.kind == "sql"
                else f"this upstream cannot tell its {guard.kind}"
            )
            faults.append(f"guards[{index}]: {said}")
    return faults


def _misplaced_references(tree: Tree) -> list[str]:
    return [
        f"{spell_path(path)}: references are allowed only in upstream, sink and spark"
        for path, text in leaves(tree)
        if path[0] not in _MAY_HOLD_REFERENCES
        and {kind for kind, _ in REFERENCE.findall(str(text))} & {"env", "file"}
    ]
