"""The settings that a session needs to read and write lake tables."""

import pytest
from hint_typed import typed

from backfill_cli.errors import UsageError
from backfill_cli.spark import table_formats
from backfill_cli.spark.table_formats import FORMATS, session_settings


def test_a_job_without_lake_tables_asks_for_no_jar() -> None:
    assert session_settings((), {"spark.ui.enabled": "true"}) == {"spark.ui.enabled": "true"}


def test_both_formats_are_in_one_session() -> None:
    settings = session_settings(("delta", "iceberg", "delta"), {})
    packages = settings["spark.jars.packages"].split(",")
    assert len(packages) == 2
    assert settings["spark.sql.extensions"].count(",") == 1
    assert "org.apache.hadoop:hadoop-client-api" in settings["spark.jars.excludes"]
    assert "s3" not in str(settings).replace("spark3", "")


def test_a_table_on_s3_brings_the_jars_and_the_address_and_what_the_user_sets_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    settings = session_settings(("delta", "s3"), {"spark.hadoop.fs.s3a.endpoint": "http://own"})
    assert "org.apache.hadoop:hadoop-aws:3.4.2" in settings["spark.jars.packages"].split(",")
    assert not any(one.startswith("org.apache.hadoop:*") for one in settings["spark.jars.excludes"].split(","))
    assert settings["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://own"
    assert settings["spark.sql.extensions"] == FORMATS["delta"].extension


@pytest.mark.parametrize("given", ["spark.jars", "spark.jars.packages"])
def test_jars_that_the_user_gives_are_not_fetched(given: str) -> None:
    settings = session_settings(("delta",), {given: "/jars/delta-spark_4.1_2.13-4.4.1.jar"})
    assert settings[given] == "/jars/delta-spark_4.1_2.13-4.4.1.jar"
    assert "io.delta:delta-spark_4.1_2.13:4.4.0" not in settings.get("spark.jars.packages", "")
    assert settings["spark.sql.extensions"] == FORMATS["delta"].extension


def test_extensions_and_catalogs_of_the_user_stay() -> None:
    own = {"spark.sql.extensions": "org.own.Extension", "spark.sql.catalog.spark_catalog": "org.own.Catalog"}
    settings = session_settings(("delta",), own)
    assert settings["spark.sql.extensions"].split(",") == ["org.own.Extension", FORMATS["delta"].extension]
    assert settings["spark.sql.catalog.spark_catalog"] == "org.own.Catalog"


def test_a_spark_that_no_jar_is_known_for_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_formats, "version", lambda _package: "4.9.1")
    with pytest.raises(UsageError, match=r"no .* jar is known for pyspark 4\.9\.1, only for 4\.1") as caught:
        session_settings(("iceberg",), {})
    with typed(caught.value) as hint:
        hint.says("name suitable jars in [spark.conf] 'spark.jars'")
        assert session_settings(("iceberg",), {"spark.jars": "/own/iceberg-spark-runtime-4.9.jar"})
        hint.says("pip install 'pyspark==4.1.*'")
        monkeypatch.setattr(table_formats, "version", lambda _package: "4.1.9")
        assert "runtime-4.1" in session_settings(("iceberg",), {})["spark.jars.packages"]
