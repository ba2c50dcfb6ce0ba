"""Topics as a sink: what the engine asks of it. All tables of an epoch commit in one transaction."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from backfill_cli.contracts import (
    EpochCommit,
    SavedJob,
    Sink,
    SinkCapabilities,
    SinkExtras,
    SinkTable,
    StatePlace,
    own,
)
from backfill_cli.contracts.refusals import TargetTaken, no_record, refuse_old_token, taken
from backfill_cli.errors import of_table
from backfill_cli.kafka.admin import Admin
from backfill_cli.kafka.cluster import place
from backfill_cli.kafka.connection import Connection
from backfill_cli.lake.sink import LakeCopy
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.schema_registry.registry import asked
from backfill_cli.sinks.kafka import KafkaSinkOptions, making, names, reading, state, writing
from backfill_cli.sinks.kafka.encodings import Records, records_of
from backfill_cli.sinks.kafka.state import JobRecord, StateTopic
from backfill_cli.sinks.kafka.topics import StateTaken, Topics
from backfill_cli.sinks.kafka.transaction import Transaction, not_allowed
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import spark_reading

_WITHDRAWN_S = 5.0
"""A claim is withdrawn within a second."""
RIGHTS = "Create, Describe, Read and Write the topics, and to Describe and Write the transactional id"


class KafkaSink(Sink):
    """See contracts.Sink. Writes whole rows: a record replaces the one of its key."""

    capabilities = SinkCapabilities(transactional=True, partial=False)

    def __init__(self, options: KafkaSinkOptions) -> None:
        self._options = options
        self._connection = Connection(options, RIGHTS)
        self._admin = Admin(self._connection)
        self._encoded: dict[SinkTable, Records] = {}
        beside = asked(options.registry, "sink.registry", "sink registry")
        self.extras = SinkExtras(
            copied=self.copied,
            state=self._state_place,
            warnings=lambda tables: self._topics().losing(tables),
            beside=beside,
        )

    def use(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def _state(self, job: str) -> StateTopic:
        return StateTopic(self._admin, names.state_of(self._options, job))

    @contextmanager
    def _changing(self, job: str) -> Iterator[tuple[Transaction, JobRecord | None]]:
        """A transaction of the job, opened, and its record, which no other process can then change."""
        name = names.state_of(self._options, job)
        with Transaction(self._connection, name, self._options.transaction_timeout) as transaction:
            yield transaction, self._state(job).newest()

    def _write(self, transaction: Transaction, record: JobRecord, more: state.Records = ()) -> None:
        transaction.begin()
        topic = self._state(record.job)
        topic.send(transaction, [*more, state.of_job(record)])
        topic.commit(transaction)

    def _records(self, table: SinkTable) -> Records:
        """How the table's records are written; its schemas are registered, once in this process."""
        if table not in self._encoded:
            self._encoded[table] = records_of(self._options, table, names.topic_of(self._options, table))
        return self._encoded[table]

    def _topics(self) -> Topics:
        return Topics(self._options, self._admin)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        cluster = self._admin.cluster_id()
        topics = names.topics_of(self._options, tables)
        return {name: frozenset({place(cluster, topic)}) for name, topic in topics.items()}

    def _state_place(self, job: str) -> StatePlace:
        topic = names.state_of(self._options, job)
        return StatePlace(f"topic '{topic}'", "sink.state_topic", place(self._admin.cluster_id(), topic))

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        self._topics().missing(job, tables, into_existing)
        most_ms, timeout_s = (
            self._admin.broker_setting("transaction.max.timeout.ms"),
            self._options.transaction_timeout,
        )
        if most_ms is not None and most_ms.isdecimal() and timeout_s * 1000 > int(most_ms):
            raise not_allowed(f"{self._connection.servers}: sink.transaction_timeout", timeout_s)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        topics = self._topics()
        missing = topics.missing(job, tables, into_existing)
        if not missing:
            return
        topics.make(job, missing)
        for table in missing.schemas:
            self._records(table)  # a registry that refuses a schema does it before the first row
        with self._changing(job) as (transaction, held):
            record = held or JobRecord(job)
            token = max((one.token for one in record.tables.values()), default=0)
            claimed = {name: replace(one, token=token) for name, one in topics.claims(missing).items()}
            schemas = [state.of_schema(one.name, one.schema) for one in missing.schemas]
            self._write(transaction, record.with_tables(claimed), schemas)
        self._settle(job, tables, held)

    def _settle(self, job: str, tables: Sequence[SinkTable], before: JobRecord | None) -> None:
        """No other job has one of the topics, or this one's claim is withdrawn: then raises as `refuse_others`.

        Of two jobs that start at once each can see the other's claim. The later one by name withdraws its own,
        for which the other waits: one of them has the topics. before: the job's record without the claim.
        """
        until = time.monotonic() + _WITHDRAWN_S
        while True:
            try:
                return self._topics().refuse_others(job, tables)
            except (TargetTaken, StateTaken) as error:
                if error.job < job or time.monotonic() > until:
                    self._withdraw(job, before)
                    raise
            time.sleep(0.1)

    def _withdraw(self, job: str, before: JobRecord | None) -> None:
        """The state's topic stays: the other job may be reading it, and would wait for what is gone."""
        with self._changing(job) as (transaction, _):
            self._write(transaction, before or JobRecord(job))

    def owner(self, job: str) -> Owner | None:
        record = self._state(job).newest()
        return None if record is None else record.owner

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner == instead_of:
            return
        with self._changing(job) as (transaction, record):
            if record is None:
                raise no_record(job)
            held = record.owner
            if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
                raise taken(job, held)
            self._write(transaction, replace(record, owner=owner))

    def fence(self, job: str, token: int) -> None:
        """Opening the transaction ends the one of an older runner, if it has one."""
        if not self._state(job).exists():
            return
        with self._changing(job) as (transaction, record):
            if record is None:
                return
            for table, marker in record.markers.items():
                refuse_old_token(job, table, token, marker)
            raised = {name: replace(one, token=token) for name, one in record.tables.items() if one.token < token}
            if raised:
                self._write(transaction, record.with_tables(raised))

    def committed(self, job: str) -> Mapping[str, Marker]:
        record = self._state(job).newest()
        return {} if record is None else record.markers

    def knows(self, job: str) -> bool:
        """A topic of the job's name with a record of the job; or an empty one, as a start leaves that was refused.

        An empty one of a name that others can have is the job's if it was made for it, as its settings say.
        """
        topic = self._state(job)
        record = topic.newest()
        if record is not None:
            return record.job == job
        is_own = own.is_own(self._options.state_topic)
        return topic.exists() and topic.last() is None and (is_own or self._topics().is_as_made(topic.name))

    def commit(self, commit: EpochCommit) -> None:
        topic = self._state(commit.job)
        record = topic.newest()
        due = writing.tables_due(commit, record)
        if record is None or not due:
            return
        work = writing.Work(
            self._connection,
            topic.name,
            self._options.transaction_timeout,
            self._options.accept_growth,
            commit,
            {one.name: self._records(one) for one in due},
        )
        spark = self._session()
        with spark_reading():
            for table in due:
                if table.name in commit.unique:
                    held = record.tables[table.name]
                    with of_table(table.name):
                        reading.refuse_duplicates(
                            spark, self._connection, self._admin, commit, table, held, work.records[table.name]
                        )
            self._run(work)

    def _run(self, work: writing.Work) -> None:
        """One task in a worker of Spark: no row passes through this process."""
        arrow_tasks.frame(self._session(), partial(writing.apply, work), (0,), "rows BIGINT").toArrow()

    def saved(self, job: str) -> SavedJob | None:
        return self._state(job).saved()

    @contextmanager
    def copied(self, job: str, live: bool, folder: Path) -> Iterator[LakeCopy]:
        """See `contracts.SinkExtras`. Nothing is copied: what is committed in a log stays as it is."""
        topic = self._state(job)
        found = reading.bounds(self._admin, self._connection.of_all_records(), topic.newest)
        if found is None:
            raise no_record(job)
        saved = topic.saved()

        def rows(spark: SparkSession, table: SinkTable) -> DataFrame:
            held = found.record.tables[table.name]
            of = reading.Rows(self._connection, held.topic, table, held.epoch, self._records(table))
            return of.frame(spark, found.ranges(held.topic))

        versions = {f"{name}/{p}": span for (name, p), span in found.spans.items()}
        yield LakeCopy(self._session(), rows, saved, versions, lambda _table: None)

    def drop(self, tables: Sequence[SinkTable]) -> None:
        making.delete(self._admin, [names.topic_of(self._options, table) for table in tables])

    def leave(self, job: str, tables: Sequence[str]) -> None:
        if self._state(job).exists():
            with self._changing(job) as (transaction, record):
                if record is not None and not record.tables.keys().isdisjoint(tables):
                    rest = {name: one for name, one in record.tables.items() if name not in tables}
                    self._write(transaction, replace(record, tables=rest))

    def forget(self, job: str) -> None:
        if self.knows(job):
            making.delete(self._admin, [names.state_of(self._options, job)])
