"""Which property of a config an error of a table format is about; the errors are those of Iceberg and Delta."""

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import IllegalArgumentException

from backfill_cli.errors import Fatal
from backfill_cli.lake.iceberg.edge import failing
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.options import blamed

if TYPE_CHECKING:
    from collections.abc import Mapping

CODEC = {"write.parquet.compression-codec": "zstdd", "format-version": "2", "write.object-storage.enabled": "true"}
NO_CODEC = (
    "Job aborted due to stage failure: Task 2 in stage 2.0 failed 1 times, most recent failure: Lost task 2.0 in "
    "stage 2.0 (TID 2) (host executor driver): java.lang.IllegalArgumentException: Unsupported compression codec: "
    "zstdd"
)


@pytest.mark.parametrize(
    ("said", "properties", "told"),
    [
        (NO_CODEC, CODEC, ' (sink.properties has "write.parquet.compression-codec" = "zstdd")'),
        ('For input string: "abc"', {"a.b": "abc", "c": "ab"}, ' (sink.properties has "a.b" = "abc")'),
        ('For input string: "yes"', {"a": "yes", "b": "yes"}, ' (sink.properties has "a" = "yes", "b" = "yes")'),
        ('For input string: "7x"', {"a": "7", "b": "x"}, ""),
        ("exit code: 2, done: true", {"a": "2", "b": "true"}, ""),
    ],
)
def test_the_properties_are_named_whose_value_a_message_quotes(
    said: str, properties: "Mapping[str, str]", told: str
) -> None:
    assert blamed(said, properties) == told


def test_a_write_that_iceberg_refuses_for_a_property_names_it_and_where_it_is_set() -> None:
    with pytest.raises(Fatal) as refused, failing(Place.of("l/t"), CODEC):
        raise IllegalArgumentException(NO_CODEC)
    assert refused.value.message.endswith('(sink.properties has "write.parquet.compression-codec" = "zstdd")')
    assert str(refused.value.hint).startswith("correct sink.properties in the config")
    assert str(refused.value.without_job().hint) == "correct sink.properties in the config, then start again"


def test_another_failure_says_nothing_of_properties() -> None:
    with pytest.raises(Fatal) as refused, failing(Place.of("l/t"), CODEC):
        raise IllegalArgumentException("something else")
    assert refused.value.message.endswith("/l/t: something else")
