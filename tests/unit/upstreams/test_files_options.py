"""What the `[upstream]` part of a config may say."""

from typing import Any

import pytest
from pydantic import ValidationError

from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.options import ChangesOptions, FilesOptions, SnapshotOptions

PARQUET = {"path": "snap", "format": "parquet"}


def faults(config: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        FilesOptions.model_validate(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"snapshot": {"path": "s", "format": "csv"}}, "set schema"),
        ({"snapshot": {"path": "s", "format": "json"}}, "set schema"),
        ({"snapshot": {**PARQUET, "schema": "id INT"}}, "remove schema"),
        ({"snapshot": {"path": "", "format": "parquet"}}, "snapshot.path"),
        ({"snapshot": {"path": "s", "format": "orc"}}, "'parquet', 'json', 'csv' or 'avro'"),
        (
            {"snapshot": PARQUET, "changes": {"path": "c", "format": "debezium", "file_format": "csv"}},
            "read from json",
        ),
        ({"snapshot": PARQUET, "changes": {"path": "c", "format": "dms", "timestamps": "us"}}, "are for debezium"),
        ({"snapshot": PARQUET, "changes": {"path": "c", "format": "debezium", "time_column": "t"}}, "is for dms"),
        ({"snapshot": {**PARQUET, "as_of": "1.json"}}, "set changes"),
        ({"snapshot": PARQUET, "chagnes": {}}, "chagnes"),
    ],
)
def test_a_fault_says_what_to_write_instead(config: dict[str, Any], fault: str) -> None:
    assert fault in faults(config)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.parquet", "parquet"),
        ("a.snappy.parquet", "parquet"),
        ("a.csv.gz", "csv"),
        ("a.JSON", None),
        ("a", None),
    ],
)
def test_a_dms_file_is_what_its_name_says(name: str, kind: str | None) -> None:
    assert ChangesOptions.model_validate({"path": "c", "format": "dms"}).reads_as(name) == kind


def test_a_format_with_one_kind_of_file_needs_no_extension() -> None:
    assert ChangesOptions.model_validate({"path": "c", "format": "debezium"}).reads_as("topic+0+000") == "json"


def test_every_option_says_what_it_is_for() -> None:
    models = connector.options.model_json_schema()
    for model in (models, *models["$defs"].values()):
        for name, described in model["properties"].items():
            assert described.get("description") or described.get("$ref"), name


def test_declaring_a_new_column_does_not_change_the_job_and_anything_else_does() -> None:
    def of(**changes: Any) -> Any:
        config = {"snapshot": PARQUET, "changes": {"path": "c", "format": "debezium", **changes}}
        return connector.fingerprint(FilesOptions.model_validate(config))

    assert of() == of(columns="note STRING")
    assert of() != of(timestamps="us")


def test_options_survive_being_stored() -> None:
    config = {"snapshot": {"path": "s", "format": "csv", "schema": {"a": "id INT"}}}
    options = FilesOptions.model_validate(config)
    assert FilesOptions.model_validate_json(options.model_dump_json()) == options


def test_other_csv_options_leave_a_snapshots_header_on() -> None:
    told = {"path": "x", "format": "csv", "schema": "id BIGINT"}
    assert SnapshotOptions.model_validate({**told, "csv": {"delimiter": ";"}}).csv.header
    assert not SnapshotOptions.model_validate({**told, "csv": {"header": False}}).csv.header
