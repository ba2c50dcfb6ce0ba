"""The session: our settings, the user's that override them, and a real session that has them."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed

from backfill_cli.errors import Transient, UsageError
from backfill_cli.sinks.delta import DeltaOptions, connector
from backfill_cli.spark import driver
from backfill_cli.spark.session import PROPAGATES, _cause, _plan_quickly, _settings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_setting_that_results_depend_on_is_not_the_users(spark: "SparkSession") -> None:
    with pytest.raises(UsageError, match=r"spark\.sql\.session\.timeZone") as refused:
        open_session("local[1]", {"spark.sql.session.timeZone": "Europe/Berlin"})
    with typed(refused.value) as hint:
        hint.says("remove it from [spark.conf]")
        assert open_session("local[1]", {}).version == spark.version


@pytest.mark.parametrize(("master", "partitions"), [("local", "1"), ("local[3]", "3"), ("local[4,2]", "4")])
def test_a_local_shuffle_has_as_many_partitions_as_cores(master: str, partitions: str) -> None:
    assert _settings(master)["spark.sql.shuffle.partitions"] == partitions


@pytest.mark.parametrize(("master", "tasks"), [("local[3]", "3"), ("local[64]", "8")])
def test_a_delta_tables_log_is_read_by_as_many_tasks_as_cores(master: str, tasks: str) -> None:
    assert _settings(master)["spark.databricks.delta.snapshotPartitions"] == tasks


@pytest.mark.parametrize(
    ("conf", "length"),
    [
        ({}, "1000"),
        ({"spark.ui.enabled": "true"}, None),
        ({"spark.eventLog.enabled": "TRUE"}, None),
        ({"spark.sql.maxPlanStringLength": "7"}, "7"),
    ],
)
def test_plans_are_described_in_full_where_somebody_can_see_them(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], length: str | None
) -> None:
    given = list[Mapping[str, str]]()
    monkeypatch.setattr("backfill_cli.spark.session._launch", lambda _, settings: given.append(settings))
    open_session("local[1]", conf, formats=("delta",))
    assert given[0].get("spark.sql.maxPlanStringLength") == length
    assert given[0]["spark.databricks.delta.snapshotPartitions"] == "1"


def test_a_cluster_keeps_its_own_addresses_and_memory() -> None:
    assert "spark.driver.bindAddress" not in _settings("spark://host:7077")


def test_the_session_is_in_utc_and_listens_on_loopback_only(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_what_is_known_of_columns_is_not_derived_for_all_that_are_computed_of_one(spark: "SparkSession") -> None:
    """A log of 17 columns in JSON took half a minute to plan. SELECTs of users gain by it."""

    def filters(session: "SparkSession") -> int:
        session.range(9).createOrReplaceTempView("numbers")
        joined = "SELECT * FROM numbers AS a JOIN numbers AS b ON a.id = b.id WHERE a.id > 7"
        said = session.sql(f"EXPLAIN EXTENDED {joined}").first()
        assert said is not None
        session.catalog.dropTempView("numbers")  # of the session of all tests
        return (
            str(said[0]).split("== Physical Plan ==")[0].split("== Optimized Logical Plan ==")[1].count("Filter")
        )

    lake = connector.open(DeltaOptions(table="/none/{table}"))
    lake.use(lambda: spark)
    assert lake.extras.derives is not None
    assert (filters(spark), filters(lake.extras.derives.spark)) == (1, 2)

    before = spark.conf.get(PROPAGATES)
    spark.conf.set(PROPAGATES, "true")
    try:
        _plan_quickly(spark, {PROPAGATES: "true"}.__contains__)
        assert spark.conf.get(PROPAGATES) == "true", "[spark.conf] and spark-defaults.conf say otherwise"
    finally:
        spark.conf.set(PROPAGATES, before)


def test_a_second_call_gives_the_session_that_is_there(spark: "SparkSession") -> None:
    again = open_session("local[2]", {"spark.sql.shuffle.partitions": "2"})

    assert again.version == spark.version
    assert again.range(3).count() == 3


def test_a_failed_query_prints_nothing(spark: "SparkSession", capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark.sql("SELECT 1 / id FROM range(1)").write.format("noop").mode("overwrite").save()

    assert capfd.readouterr() == ("", "")
    assert isinstance(driver.last_words(), str)


def test_a_connect_server_that_is_not_there_is_transient() -> None:
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1 does not answer"):
        open_session("local[1]", {}, remote="sc://127.0.0.1:1/;token=canary")


def test_a_cluster_none_of_whose_masters_answers_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself tries for a minute, and then stops without a word."""

    class Launched(Exception):
        pass

    def launched(_conf: object) -> None:
        raise Launched

    monkeypatch.setattr(driver, "start", launched)
    monkeypatch.setattr(driver, "end", lambda _timeout_s: None)  # that of these tests goes on
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    silent = "spark://127.0.0.1:1,[::1]:1"
    with pytest.raises(
        Transient, match=r"the cluster spark://127\.0\.0\.1:1,\[::1\]:1 does not answer"
    ) as refused:
        open_session(silent, {})
    with typed(refused.value) as hint, socket.create_server(("127.0.0.1", 0)) as master:
        hint.says("start it, or correct spark.master")
        with pytest.raises(Launched):
            open_session(f"{silent},127.0.0.1:{master.getsockname()[1]}", {})


@pytest.mark.parametrize("remote", ["local[2]", "http://host:15002", "sc://"])
def test_a_remote_that_is_no_connect_address_is_refused(remote: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark Connect address"):
        open_session("local[1]", {}, remote=remote)


@pytest.mark.seconds
def test_what_the_connect_client_needs_comes_with_its_extra() -> None:
    """Tests have no pandas, see without/sitecustomize.py; a process of its own has."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(UsageError, match=r"spark\.remote: .* Pandas .* must be installed") as lacking,
    ):
        open_session("local[1]", {}, remote=f"sc://127.0.0.1:{server.getsockname()[1]}")
    with typed(lacking.value) as hint:
        assert "pandas" in hint.packages()
        program = Path(__file__).with_name("connect_process.py")
        told = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], *sys.path])}
        done = subprocess.run([sys.executable, program], env=told, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (0, "pyspark.sql.connect.session\n"), done.stderr


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("org.apache.spark.SparkException: Could not parse Master URL: 'x'", "Could not parse Master URL: 'x'"),
        (
            "java.lang.RuntimeException: first\n\tat a.B.c(B.java:1)\n\t... 3 more\n"
            "Caused by: java.lang.ClassNotFoundException: org.foo.Bar",
            "ClassNotFoundException: org.foo.Bar",
        ),
        ("org.apache.spark.SparkException: of two\nlines", "of two\nlines"),
    ],
)
def test_what_java_reports_is_shown_without_its_stack(said: str, cause: str) -> None:
    called = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
    assert _cause(f"{called}{said}\n\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:600)\n") == cause


def test_a_second_job_in_one_process_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another thread: it would be given a Java of its own, and then no context."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(UsageError, match="already, for another job") as refused:
        open_session("local[1]", {})
    with typed(refused.value) as hint:
        hint.says("in a process of its own: start(detach=True)")
