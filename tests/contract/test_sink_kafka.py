"""The Kafka sink under the contract, and what can only go wrong with topics."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from hint_typed import typed
from kafka_sink import SinkTopics
from kafka_topics import BYTES, new_topic
from sink_contract import Epochs, Read, SinkContract, a_table, rows, schema_json

from backfill_cli import failpoint
from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.contracts import EpochCommit
from backfill_cli.contracts.refusals import TargetTaken
from backfill_cli.engine.job.drop import drop_from_sink
from backfill_cli.engine.job.select import require_apart
from backfill_cli.errors import (
    BackfillError,
    BadData,
    Fatal,
    Held,
    NoSuchJob,
    SinkInUse,
    StateConflict,
    Transient,
    UsageError,
)
from backfill_cli.kafka.connection import Connection
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.kafka import KafkaSinkOptions, connector, making, names, writing
from backfill_cli.sinks.kafka import topics as sink_topics
from backfill_cli.sinks.kafka.encodings import records_of
from backfill_cli.sinks.kafka.sink import KafkaSink
from backfill_cli.sinks.kafka.state import SETTINGS
from backfill_cli.sinks.kafka.transaction import Transaction
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import spark_reading

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession


CONFIG = """
job.name = "{}"
upstream = {{ type = "files", snapshot = {{ path = "snapshot", format = "parquet" }} }}
tables = [{{ name = "orders", key = ["id"] }}]
"""


@pytest.fixture
def topics(broker: "Broker") -> Iterator[SinkTopics]:
    """Deleted afterwards: who takes a topic that exists reads the states of all jobs there, 0.1 s each."""
    made = SinkTopics(broker)
    yield made
    made.delete()


@pytest.fixture
def opened(topics: SinkTopics, spark: "SparkSession") -> "Callable[..., KafkaSink]":
    def open_with(**more: Any) -> "KafkaSink":
        sink: KafkaSink = connector.open(KafkaSinkOptions(**topics.options(**more)))
        sink.use(lambda: spark)
        return sink

    return open_with


def work(topics: SinkTopics, commit: EpochCommit, **more: Any) -> writing.Work:
    """What the sink's task is given."""
    options = KafkaSinkOptions(**topics.options(**more))
    state = options.state_topic.replace("{job}", commit.job)
    records = {one.name: records_of(options, one, names.topic_of(options, one)) for one in commit.tables}
    limits = (options.transaction_timeout, options.accept_growth)
    return writing.Work(Connection(options), state, *limits, commit, records)


def run(one: writing.Work) -> None:
    """The task, in this process."""
    list(writing.apply(one, 0))


class At:
    """Acts once, the first time that a point is passed."""

    def __init__(self, point: str, act: Callable[[], object]) -> None:
        self.point, self.act, self.passed = point, act, False

    def __call__(self, name: str) -> None:
        if name == self.point and not self.passed:
            self.passed = True
            self.act()


class InThisProcess(KafkaSink):
    """Its task runs here: a third of the time. The tests of jobs, and the last ones here, run it in Spark."""

    def _run(self, work: writing.Work) -> None:
        run(work)


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def sink(self, topics: SinkTopics, spark: "SparkSession") -> KafkaSink:
        sink = InThisProcess(KafkaSinkOptions(**topics.options()))
        sink.use(lambda: spark)
        return sink

    @pytest.fixture
    def read(self, topics: SinkTopics) -> Read:
        return topics.rows

    def test_records_say_job_epoch_and_op_and_a_delete_is_a_tombstone(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics, epochs: Epochs
    ) -> None:
        sink = opened()
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.commit(epochs.next(upserts=rows((2, 'b"\n')), deletes=[1]))
        found = [
            (one.key(), one.value(), dict(one.headers())) for one in topics.records(f"{topics.prefix}.orders")
        ]

        def headers(epoch: bytes, op: bytes) -> dict[str, bytes]:
            return {"backfill.job": b"orders", "backfill.epoch": epoch, "backfill.op": op}

        assert sorted(found, key=lambda one: (one[2]["backfill.epoch"], one[0])) == [
            (b'{"id":1}', b'{"id":1,"name":"a"}', headers(b"10", b"r")),
            (b'{"id":1}', None, headers(b"20", b"d")),
            (b'{"id":2}', b'{"id":2,"name":"b\\"\\n"}', headers(b"20", b"u")),
        ]

    # One writer

    def test_a_runner_that_was_fenced_while_it_wrote_cannot_commit(
        self,
        sink: "KafkaSink",
        topics: SinkTopics,
        epochs: Epochs,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        fence = At("sink-before-commit", lambda: sink.fence("orders", 2))
        monkeypatch.setattr(failpoint, "handler", fence)
        with pytest.raises(Transient, match="another process has opened a transaction"):
            run(work(topics, commit))
        assert topics.rows("orders") == []
        with pytest.raises(Held, match="taken over"):
            run(work(topics, commit))
        run(work(topics, replace(commit, token=2)))
        assert [one.key() for one in topics.records(f"{topics.prefix}.orders")] == [b'{"id":1}']

    def test_a_task_that_spark_runs_twice_writes_once(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = work(topics, epochs.next(inserts=rows((1, "a"), (2, "b"))))
        monkeypatch.setattr(failpoint, "handler", At("sink-before-commit", lambda: run(one)))
        with pytest.raises(Transient, match="another process has opened a transaction"):
            run(one)
        run(one)
        assert len(topics.records(f"{topics.prefix}.orders")) == 2
        assert sink.committed("orders") == {"orders": Marker(10, 1, "a10")}

    def test_a_task_that_is_overtaken_before_its_first_record_is_sent_can_be_run_again(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Then its producer hears of it while it sends, not as it commits."""
        one = work(topics, epochs.next(inserts=rows((1, "a"), (2, "b"))))
        begin, overtaken = Transaction.begin, At("begun", lambda: run(one))

        def begun(transaction: Transaction) -> None:
            begin(transaction)
            overtaken("begun")

        monkeypatch.setattr(Transaction, "begin", begun)
        with pytest.raises(Transient, match="another process has opened a transaction"):
            run(one)
        run(one)
        assert len(topics.records(f"{topics.prefix}.orders")) == 2

    def test_a_commit_that_takes_too_long_is_aborted_and_said_to_be(
        self,
        sink: "KafkaSink",
        opened: "Callable[..., KafkaSink]",
        topics: SinkTopics,
        epochs: Epochs,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        monkeypatch.setattr(failpoint, "handler", At("sink-before-commit", lambda: time.sleep(2)))
        with pytest.raises(Transient, match="takes longer than 1 s, and was aborted") as refused:
            run(work(topics, commit, transaction_timeout="1s"))
        with typed(refused.value) as hint:
            hint.says("raise sink.transaction_timeout, or lower barrier.target")
            opened(transaction_timeout="5m").commit(commit)
        assert len(topics.records(f"{topics.prefix}.orders")) == 1

    def test_a_broker_that_restarts_before_the_commit_loses_and_repeats_nothing(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def restart() -> None:
            topics.broker.stop()
            topics.broker.start()

        monkeypatch.setattr(failpoint, "handler", At("sink-before-commit", restart))
        commit = epochs.next(inserts=rows((1, "a"), (2, "b")))
        try:
            run(work(topics, commit))
        except Transient:
            run(work(topics, commit))
        run(work(topics, commit))
        assert sink.committed("orders")["orders"].epoch == 10
        assert len(topics.records(f"{topics.prefix}.orders")) == 2

    @pytest.mark.parametrize(("point", "epoch"), [("sink-before-commit", 10), ("sink-before-close", 20)])
    def test_an_epoch_is_there_whole_or_not_at_all_after_a_kill(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, tmp_path: Path, point: str, epoch: int
    ) -> None:
        run(work(topics, epochs.next(inserts=rows((1, "a")))))
        second = epochs.next(upserts=rows((1, "A"), (2, "b")))
        assert run_in_a_child(tmp_path, work(topics, second), point) == -signal.SIGKILL
        sink.fence("orders", 1)
        assert sink.committed("orders")["orders"].epoch == epoch
        assert topics.rows("orders") == (rows((1, "a")) if epoch == 10 else rows((1, "A"), (2, "b")))
        run(work(topics, second))
        assert topics.rows("orders") == rows((1, "A"), (2, "b"))
        assert len(topics.records(f"{topics.prefix}.orders")) == 3

    def test_a_worker_that_dies_is_transient(self, sink: "KafkaSink", epochs: Epochs) -> None:
        def die(_part: int) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)
            yield

        with pytest.raises(Transient, match="Python workers was killed"), spark_reading():
            arrow_tasks.frame(sink._session(), die, (0,), "rows BIGINT").toArrow()

    # Topics of others, and topics that changed

    def test_a_topic_of_aborted_records_alone_is_empty(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        topic = f"{topics.prefix}.items"
        topics.broker.create(topic, 1)
        producer: Any = Producer({"bootstrap.servers": topics.broker.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"1")
        producer.flush(30)
        producer.abort_transaction(30)
        assert topics.records(topic) == []
        sink.check("other", (a_table("items"),), into_existing=False)
        producer.begin_transaction()
        producer.produce(topic, b"1")
        producer.commit_transaction(30)
        assert len(topics.records(topic)) == 1
        with pytest.raises(SinkInUse, match=f"'{topic}'"):
            sink.check("other", (a_table("items"),), into_existing=False)

    def test_a_topic_that_grew_stops_the_job_until_it_is_accepted(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        run(work(topics, epochs.next(inserts=rows((1, "a")))))
        topic = f"{topics.prefix}.orders"
        topics.broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        topics.broker.until_led(topic, 3)
        commit = epochs.next(upserts=rows((1, "b")))
        with pytest.raises(StateConflict, match="has 3 partitions; it had 2") as refused:
            run(work(topics, commit))
        with typed(refused.value) as hint:
            run(work(topics, commit, accept_growth=hint.settings()["sink.accept_growth"]))
        assert sink.committed("orders")["orders"].epoch == 20

    def test_a_topic_that_somebody_deleted_or_made_again_stops_the_job(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        run(work(topics, epochs.next(inserts=rows((1, "a")))))
        topic = f"{topics.prefix}.orders"
        making.delete(sink._admin, [topic])
        with pytest.raises(StateConflict, match=f"'{topic}' is gone"):
            run(work(topics, epochs.next(upserts=rows((1, "b")))))
        topics.broker.create(topic, 2)
        for act in (
            lambda: run(work(topics, replace(epochs.next(upserts=rows((1, "b"))), prev_epoch=10))),
            lambda: sink.prepare("orders", epochs.tables, into_existing=True),
        ):
            with pytest.raises(StateConflict, match="was recreated"):
                act()

    def test_a_topic_that_is_made_again_while_an_epoch_is_written_does_not_get_it(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = f"{topics.prefix}.orders"

        def again() -> None:
            making.delete(sink._admin, [topic])
            topics.broker.create(topic, 2)

        monkeypatch.setattr(failpoint, "handler", At("sink-before-commit", again))
        with pytest.raises((StateConflict, Transient)):
            run(work(topics, epochs.next(inserts=rows((1, "a")))))
        assert topics.records(topic) == []

    def test_the_topic_of_a_jobs_state_is_compacted_and_has_any_number_of_partitions(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics, tmp_path: Path
    ) -> None:
        state, sink = f"{topics.prefix}_state_orders", opened()
        topics.broker.create(state, 3, cleanup_policy="compact,delete")
        epochs = Epochs(tmp_path / "s")
        with pytest.raises(UsageError, match=r"cleanup\.policy is 'compact,delete'") as refused:
            sink.check("orders", epochs.tables, into_existing=False)
        with typed(refused.value) as hint:
            hint.says("set its cleanup.policy to compact")
            of = AlterConfigOpType.SET
            told = ConfigEntry("cleanup.policy", "compact", incremental_operation=of)
            changed = ConfigResource(ConfigResource.Type.TOPIC, state, incremental_configs=[told])
            topics.broker.admin.incremental_alter_configs([changed])[changed].result(30)
            sink.prepare("orders", epochs.tables, into_existing=False)
        run(work(topics, epochs.next(inserts=rows((1, "a")))))
        topics.broker.admin.create_partitions([NewPartitions(state, 5)])[state].result(30)
        topics.broker.until_led(state, 5)
        run(work(topics, epochs.next(upserts=rows((1, "b")))))
        assert opened().committed("orders")["orders"].epoch == 20
        assert {one.partition() for one in topics.records(state)} == {0}

    def test_a_record_that_only_the_broker_finds_too_large_stops_the_job(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        topic = f"{topics.prefix}.orders"
        making.delete(sink._admin, [topic])
        assert sink.extras.warnings(epochs.tables) == []
        topics.broker.create(topic, 2, max_message_bytes="1000")
        (told,) = sink.extras.warnings(epochs.tables)
        assert f"topic '{topic}' loses rows by its retention (cleanup.policy = delete, retention.ms = " in told
        sink.forget("orders")
        sink.prepare("orders", epochs.tables, into_existing=False)
        with pytest.raises(BadData, match="too large"):
            run(work(topics, epochs.next(inserts=rows((1, "a"), (2, os.urandom(5_000).hex())))))
        assert topics.rows("orders") == []

    def test_a_topic_that_the_job_reads_is_refused_however_its_servers_are_spelled(
        self, topics: SinkTopics
    ) -> None:
        mine, port = new_topic(topics.broker), topics.broker.bootstrap.rpartition(":")[2]
        mine.write([b"1"])
        upstream = mine.open(value=BYTES)
        upstream.pin()
        (table,) = tables = (a_table("orders"),)
        for servers in (topics.broker.bootstrap, f"localhost:{port}", f"127.0.0.1:1,{topics.broker.bootstrap}"):
            told = {"bootstrap_servers": servers, "state_topic": f"{topics.prefix}_state_{{job}}"}
            with pytest.raises(UsageError, match="the target of table 'orders' is the upstream's own") as refused:
                require_apart("a", upstream, connector.open(KafkaSinkOptions(**told, topic=mine.name)), tables)
            with typed(refused.value) as hint:
                hint.says("topic in [sink], or another tables.target")
                require_apart(
                    "a", upstream, connector.open(KafkaSinkOptions(**told, topic=f"{mine.name}.out")), tables
                )
        with pytest.raises(UsageError, match="is the upstream's own"):
            require_apart(
                "a", upstream, connector.open(KafkaSinkOptions(**told)), (replace(table, target=mine.name),)
            )
        assert upstream.extras.places().keys() == {"orders"}
        told["state_topic"] = f"{mine.name[:-1]}{{job}}"
        require_apart("job", upstream, connector.open(KafkaSinkOptions(**told)), tables)
        of_state = connector.open(KafkaSinkOptions(**told))
        with pytest.raises(UsageError, match=f"topic '{mine.name}', which keeps the state of job") as refused:
            require_apart(mine.name[-1], upstream, of_state, tables)
        with typed(refused.value) as hint:
            hint.says("set another sink.state_topic")
            del told["state_topic"]
            require_apart(mine.name[-1], upstream, connector.open(KafkaSinkOptions(**told)), tables)

    def test_a_topic_whose_name_is_as_of_a_state_is_one_by_its_records_alone(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics
    ) -> None:
        start = topics.prefix
        there: dict[str, tuple[bytes, bytes] | None] = {
            "orders": None,
            "data": (b"1", b"{}"),
            "x": (b"job", b"[]"),
        }
        for name, record in there.items():
            topics.broker.create(f"{start}-{name}", 1, cleanup_policy="compact")
            producer = Producer({"bootstrap.servers": topics.broker.bootstrap})
            if record is not None:
                producer.produce(f"{start}-{name}", record[1], record[0])
            producer.flush(30)

        def prepared(job: str, topic: str, into_existing: bool = False, state: str = f"{start}-{{job}}") -> None:
            options: dict[str, Any] = {"topics": "{table}", "topic": topic, "state_topic": state}
            opened(**options).prepare(job, (a_table("t"),), into_existing)

        prepared("one", f"{start}-orders")
        prepared("one", f"{start}-orders")
        prepared("two", f"{start}-w")
        by_template = {"topics": f"{start}-{{table}}", "state_topic": f"{start}-{{job}}"}
        opened(**by_template).prepare("three", (a_table("y"),), into_existing=False)
        for job, topic, into, fault in (
            ("four", f"{start}-four", False, "job 'four', but it is also the target of table 't'"),
            ("four", f"{start}-one", True, "job 'one', but it is also the target of table 't'"),
            ("data", f"{start}-z", False, "job 'data', but it has other records"),
            ("orders", f"{start}-z", False, "job 'orders', but it is the target of table 't' of job 'one'"),
        ):
            with pytest.raises(UsageError, match=fault) as refused:
                prepared(job, topic, into)
            with typed(refused.value) as hint:
                hint.says("name another topic")
                hint.says("sink.state_topic")
                opened(topics="{table}", topic=f"{start}-z", state_topic=f"{start}.s.{{job}}").check(
                    job, (a_table("t"),), into
                )

        with pytest.raises(UsageError, match=f"job '{start}', but it keeps that of job 'one'"):
            prepared(start, f"{start}-z", state="{job}-one")

        elsewhere = f"{start}.s.{{job}}"
        for job, topic, into in (("one", f"{start}-orders", True), ("four", f"{start}-w", False)):
            with pytest.raises(
                TargetTaken, match=f"topic '{topic}' belongs to job '{'two' if job == 'four' else job}'"
            ):
                prepared(job, topic, into, elsewhere)
        with pytest.raises(UsageError, match="job 'one', but it is also the target of table 't'"):
            prepared("four", f"{start}-one", True, elsewhere)
        opened(state_topic=f"{start}-{{job}}").forget("two")
        prepared("four", f"{start}-w", False, elsewhere)

    def test_only_what_is_known_to_be_a_jobs_state_is_forgotten(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics
    ) -> None:
        start = topics.prefix
        sink = opened(state_topic=f"{start}-{{job}}")
        sink.prepare("one", (a_table("t"),), into_existing=False)
        topics.broker.create(f"{start}-another", 1, cleanup_policy="compact")
        making.create(sink._admin, f"{start}-refused", 1, None, SETTINGS)
        known = {job: sink.knows(job) for job in ("one", "another", "refused")}
        assert known == {"one": True, "another": False, "refused": True}
        of_another = opened(state_topic="{job}-one")
        assert not of_another.knows(start)
        of_another.forget(start)
        for job in ("another", "refused"):
            sink.forget(job)
        there = sink._admin.topics()
        assert {job for job in known if f"{start}-{job}" in there} == {"one", "another"}
        topics.broker.create(f"_backfill_{start}_a", 1)
        of_own = opened(state_topic=f"_backfill_{start}_{{job}}")
        assert of_own.knows("a")
        of_own.forget("a")
        assert not of_own.knows("a")

    def test_of_two_jobs_that_start_at_once_on_a_topic_one_has_it(
        self,
        opened: "Callable[..., KafkaSink]",
        topics: SinkTopics,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        target, both = (a_table("orders", target="twice"),), threading.Barrier(2)

        def together(_of: Any, missing: Any) -> Any:
            both.wait(30)
            return claims(_of, missing)

        def prepared(job: str) -> BackfillError | None:
            try:
                opened().prepare(job, target, into_existing=False)
            except BackfillError as error:
                return error
            return None

        claims = sink_topics.Topics.claims
        monkeypatch.setattr(sink_topics.Topics, "claims", together)
        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(("one", "two"), pool.map(prepared, ("one", "two")), strict=True))
        monkeypatch.undo()
        assert list(found.values()).count(None) == 1, found
        (winner,) = [job for job, error in found.items() if error is None]
        (loser,) = found.keys() - {winner}
        refused = prepared(loser)
        for error in (found[loser], refused):
            assert isinstance(error, TargetTaken)
            assert error.job == winner
        assert opened().committed(winner).keys() == {"orders"}
        assert opened().committed(loser) == {}
        assert opened().knows(loser)
        opened().forget(winner)
        target = (a_table("orders", target="twice", schema=schema_json(id="long", name="long")),)
        assert prepared(loser) is None
        opened().check(loser, target, into_existing=False)
        target = (a_table("orders", target="twice"),)
        assert "column 'name' of twice is bigint" in str(prepared(loser))
        monkeypatch.chdir(tmp_path)
        told = ["[sink]", 'type = "kafka"', *(f"{a} = {json.dumps(b)}" for a, b in topics.options().items())]
        (tmp_path / "job.toml").write_text("\n".join((CONFIG.format(loser), *told)))
        config = load(tmp_path / "job.toml")
        drop_from_sink(loser, Catalog(tmp_path / "c.duckdb"), config)
        with pytest.raises(NoSuchJob):
            drop_from_sink(loser, Catalog(tmp_path / "c.duckdb"), config)

    # What a topic cannot hold

    def test_what_cannot_be_written_is_refused_and_says_what_to_do(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics
    ) -> None:
        def refused(kind: type[BackfillError], match: str, table: Any, **options: Any) -> BackfillError:
            with pytest.raises(kind, match=match) as found:
                opened(**options).prepare("odd", (table,), into_existing=False)
            return found.value

        by_double = a_table("odd", schema=schema_json(id="double", name="string"))
        with typed(refused(BadData, "key column 'id' is double", by_double)) as hint:
            hint.says("choose other columns: tables.key")
            opened().check("odd", (replace(by_double, key=("name",)),), into_existing=False)
        with typed(
            refused(
                BadData, "'name': interval has no", a_table("odd", schema=schema_json(id="long", name="interval"))
            )
        ) as hint:
            hint.says("cast it in the transform's select")
            opened().check("odd", (a_table("odd"),), into_existing=False)
        with typed(refused(UsageError, "cannot name a topic", a_table("odd", target="ä"))) as hint:
            named = str(hint.settings()["tables.target"])
            opened().check("odd", (a_table("odd", target=named),), into_existing=False)
        with typed(
            refused(UsageError, "does not exist, and sink.create is false", a_table("odd"), create=False)
        ) as hint:
            create = hint.settings()["sink.create"]
        with typed(refused(UsageError, "cannot be created", a_table("odd"), replication=7, create=create)) as hint:
            hint.says("correct sink.properties, sink.replication or sink.partitions")
            opened(replication=1, create=create).prepare("odd", (a_table("odd"),), into_existing=False)
        with pytest.raises(Fatal, match="the brokers allow less than 2 h") as too_long:
            opened(transaction_timeout="2h").fence("odd", 2)
        with pytest.raises(Fatal, match="the brokers allow less than 2 h"):
            opened(transaction_timeout="2h").check("odd", (a_table("odd"),), into_existing=False)
        with typed(too_long.value) as hint:
            hint.says("lower sink.transaction_timeout")
            opened(transaction_timeout="10m").fence("odd", 2)

    def test_a_record_that_is_too_large_is_named(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a"), (2, os.urandom(2_000_000).hex())))
        with pytest.raises(BadData, match=r'too large: the record with the key \{"id":2\}') as refused:
            run(work(topics, commit))
        assert topics.rows("orders") == []
        with typed(refused.value) as hint:
            hint.says("raise max.message.bytes of the topic and sink.options.'message.max.bytes'")
            topic = f"{topics.prefix}.orders"
            making.delete(sink._admin, [topic])
            topics.broker.create(topic, 2, max_message_bytes="8000000")
            sink.forget("orders")
            sink.prepare("orders", epochs.tables, into_existing=False)
            run(work(topics, commit, options={"message.max.bytes": "8000000"}))
        assert [row["id"] for row in topics.rows("orders")] == [1, 2]

    def test_a_truncate_is_refused_and_nothing_is_written(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs
    ) -> None:
        run(work(topics, epochs.next(inserts=rows((1, "a")))))
        with pytest.raises(BadData, match="was truncated upstream"):
            run(work(topics, epochs.next(truncated=True)))
        assert topics.rows("orders") == rows((1, "a"))

    def test_rows_of_one_key_are_found_where_compaction_has_merged_them(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics, tmp_path: Path
    ) -> None:
        epochs = Epochs(tmp_path / "s")
        quick = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0001"}
        sink = opened(partitions=1, properties=quick)
        sink.prepare("orders", epochs.tables, into_existing=False)
        topic = f"{topics.prefix}.orders"
        for name in "ab":
            run(work(topics, epochs.next(inserts=rows((7, name)))))
            time.sleep(0.2)
        run(work(topics, epochs.next(inserts=rows((8, "c")))))
        until = time.monotonic() + 60
        while len(topics.records(topic)) > 2:
            assert time.monotonic() < until, "the broker does not compact the topic"
            time.sleep(0.2)
        with pytest.raises(BadData, match=r"\(id\) is not unique in the snapshot"):
            sink.commit(epochs.next(inserts=rows((9, "d")), unique=("orders",)))

    def test_rows_read_back_are_those_of_the_last_commit(
        self, sink: "KafkaSink", topics: SinkTopics, epochs: Epochs, spark: "SparkSession", tmp_path: Path
    ) -> None:
        run(work(topics, epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c")))))
        run(work(topics, epochs.next(upserts=rows((2, "B")), deletes=[3])))
        (table,) = epochs.tables
        with sink.copied("orders", False, tmp_path) as copy:
            saved = copy.saved()
            assert saved is not None
            assert saved.checkpoint.epoch == 20
            run(work(topics, epochs.next(upserts=rows((1, "later")))))
            found = copy.frame(spark, table, ["id", "name"], None).toArrow().to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == rows((1, "a"), (2, "B"))

    def test_a_record_of_another_program_that_is_no_row_is_named_when_rows_are_read_back(
        self, opened: "Callable[..., KafkaSink]", topics: SinkTopics, spark: "SparkSession", tmp_path: Path
    ) -> None:
        topic = f"{topics.prefix}.orders"
        topics.broker.create(topic, 1)
        other = Producer({"bootstrap.servers": topics.broker.bootstrap})
        other.produce(topic, b"no row", b'{"id":1}')
        other.flush(30)
        epochs, sink = Epochs(tmp_path / "s"), opened()
        sink.prepare("orders", epochs.tables, into_existing=True)
        run(work(topics, epochs.next(inserts=rows((2, "b")))))
        (table,) = epochs.tables

        def held() -> list[Any]:
            with sink.copied("orders", False, tmp_path) as copy:
                found: list[Any] = copy.frame(spark, table, ["id", "name"], None).toArrow().to_pylist()
                return found

        with pytest.raises(BadData, match=f"topic '{topic}', partition 0, offset 0") as refused, spark_reading():
            held()
        with typed(refused.value) as hint:
            hint.says("delete it, or let it write rows as this job does")
            for done in topics.broker.admin.delete_records([TopicPartition(topic, 0, 1)]).values():
                done.result(30)
            assert held() == rows((2, "b"))


def run_in_a_child(folder: Path, one: writing.Work, point: str) -> int:
    """The task in a process of its own, which dies at this point; its exit code."""
    (folder / "work").write_bytes(pickle.dumps(one))
    code = (
        "import pickle, pathlib, sys\n"
        "from backfill_cli.sinks.kafka import writing\n"
        "list(writing.apply(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()), 0))\n"
    )
    told = {**os.environ, "BACKFILL_FAILPOINT": point}
    return subprocess.run([sys.executable, "-c", code, str(folder / "work")], env=told, check=False).returncode


def test_options_name_topics_as_kafka_allows_them() -> None:
    told = {"bootstrap_servers": "h:9092"}
    for wrong in (
        {"topics": "orders"},
        {"topics": "a/{table}"},
        {"topic": "a b"},
        {"topic": "a", "topics": "b.{table}"},
        {"state_topic": "state"},
        {"options": {"transactional.id": "x"}},
        {"options": {"enable.idempotence": "false"}},
    ):
        with pytest.raises(ValueError, match="validation error"):
            KafkaSinkOptions(**told, **wrong)
    assert connector.fingerprint(KafkaSinkOptions(**told, topic="a")) == {
        "type": "kafka",
        "state_topic": "_backfill_job_{job}",
        "topic": "a",
    }
    assert json.loads(json.dumps(connector.fingerprint(KafkaSinkOptions(**told))))["topics"] == "{table}"
