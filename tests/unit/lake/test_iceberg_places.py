"""Statements shown to users can be typed as they are: for a table of a folder, and for one of a catalog."""

from backfill_cli.errors import START_OVER
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.upstreams.iceberg.table import copied_on_write
from backfill_cli.view.console import laid_out


def test_for_a_folder_the_catalog_is_described_in_which_the_statements_can_be_typed() -> None:
    place = Place.of("/data/lake/db/people")
    where = "in Spark, with a catalog lake of type hadoop whose warehouse is /data/lake/db: "
    altered = "ALTER TABLE `lake`.`people` DROP BRANCH b"
    assert str(place.in_spark(place.alter("DROP BRANCH b"))) == where + altered
    called = "CALL `lake`.system.rollback_to_snapshot(table => '`people`', snapshot_id => 7)"
    assert place.call("rollback_to_snapshot", "snapshot_id => 7") == called


def test_a_catalog_of_the_config_is_known_by_its_name() -> None:
    place = Place.of("prod.db.people")
    altered = "ALTER TABLE `prod`.`db`.`people` DROP BRANCH b"
    assert str(place.in_spark(place.alter("DROP BRANCH b"))) == altered
    assert (
        place.call("rollback_to_snapshot") == "CALL `prod`.system.rollback_to_snapshot(table => '`db`.`people`')"
    )


def test_on_a_narrow_screen_each_statement_is_alone_on_its_line() -> None:
    lines = laid_out(copied_on_write(Place.of("/data/mv")) + "; then " + START_OVER, 80)
    assert [line.split(" (")[0].split("(")[0] for line in lines] == [
        "in Spark, with a catalog lake of type hadoop whose warehouse is /data:",
        "ALTER TABLE `lake`.`mv` SET TBLPROPERTIES",
        "CALL `lake`.system.rewrite_data_files",
        "then drop the job and start over",
    ]
    assert lines[1].endswith("'copy-on-write')")
    assert lines[2].endswith("'true'))")
