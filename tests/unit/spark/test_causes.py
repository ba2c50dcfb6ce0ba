"""An error of Spark's is shown in its own words, whatever Python and Java put around them."""

import pytest

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.lake.delta.edge import Where
from backfill_cli.sinks.delta.apply import delta_writing
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.object_store import meant

WRAPPED = {
    "an object's method": "An error occurred while calling o1.f.\n: java.io.IOException: {}\n\tat org.X(X.java:1)",
    "a static method": (
        "An error occurred while calling z:org.apache.spark.F.f.\n: org.apache.spark.SparkException: {}\n\tat X"
    ),
    "a constructor": "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: {}",
    "no call": "{}\n\nJVM stacktrace:\norg.X: y",
    "a plan": "\n{}\n'Project [a]\n+- Relation",
}
OWN = ("[DELTA_X] The table s3a://b/t: no. SQLSTATE: 42", "java: not found", "a.b.C", "Caused by: x")


@pytest.mark.parametrize("around", WRAPPED)
@pytest.mark.parametrize("own", OWN)
def test_the_cause_is_what_the_error_itself_says(around: str, own: str) -> None:
    assert cause_in(WRAPPED[around].format(own)) == own


def test_an_error_without_words_has_none() -> None:
    assert cause_in("") == cause_in("An error occurred while calling o1.f.\n: ") == ""


def test_a_commit_that_delta_refuses_is_told_without_javas_call() -> None:
    table, where = SinkTable("t", "t", ("id",), "{}"), Where.of("/lake/t", "")
    said = WRAPPED["a static method"].format("[DELTA_TABLE_FOUND] no")
    with pytest.raises(BackfillError) as told, delta_writing(table, where):
        raise RuntimeError(said)
    assert "commit: [DELTA_TABLE_FOUND] no" in told.value.message


def test_a_stores_answer_to_a_static_method_is_told_without_javas_call() -> None:
    told = meant("s3://b/t", WRAPPED["a static method"].format("S3Exception: Read timed out"))
    assert told is not None
    assert "An error occurred" not in told.message
