"""An Iceberg table that another session writes, and the upstream that reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from upstream_world import TABLE, Row

from backfill_cli.contracts import TableSpec
from backfill_cli.upstreams.iceberg import connector
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str, Row | None, Row | None]


@dataclass
class IcebergWorld:
    """One writer with its own session and catalog, so that it uses nothing of the code under test."""

    session: "SparkSession"
    folder: Path
    rows: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = self.session.newSession()
        self.name = f"w{abs(hash(str(self.folder))):x}"
        told = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(self.folder)}
        for key, value in {**told, ".cache-enabled": "false"}.items():
            self.session.conf.set(f"spark.sql.catalog.{self.name}{key}", value)

    def sql(self, text: str) -> None:
        self.session.sql(text.format(t=f"{self.name}.orders", c=self.name))

    def create(self, columns: str = "id BIGINT, name STRING", **properties: str) -> None:
        told = ", ".join(f"'{key.replace('__', '.')}' = '{value}'" for key, value in properties.items())
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg" + (f" TBLPROPERTIES ({told})" if told else ""))

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        self.create()
        for part in splits:
            self.frame(part).coalesce(1).writeTo(f"{self.name}.orders").append()
            self.rows |= {one["id"]: one for one in part}

    def land(self, changes: Sequence[Change]) -> None:
        touched: dict[int, Row] = {}
        for _, before, after in changes:
            if before is not None:
                self.rows.pop(before["id"], None)
                touched[before["id"]] = {**before, "gone": True}
            if after is not None:
                self.rows[after["id"]] = after
                touched[after["id"]] = {**after, "gone": False}
        self.frame(list(touched.values()), "id BIGINT, name STRING, gone BOOLEAN").createOrReplaceTempView("s")
        self.sql(
            "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN "
            "UPDATE SET t.name = s.name WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, name) "
            "VALUES (s.id, s.name)"
        )

    def frame(self, rows: Sequence[Row], shape: str = "id BIGINT, name STRING") -> Any:
        return self.session.createDataFrame(list(rows), shape)

    def open(self, **options: Any) -> IcebergUpstream:
        return opened(self.session, self.folder / "orders", **options)


def opened(spark: "SparkSession", path: Path, **options: Any) -> IcebergUpstream:
    told = connector.options.model_validate({"table": str(path), **options})
    upstream = connector.open(told, [TableSpec(TABLE, ("id",))])
    assert isinstance(upstream, IcebergUpstream)
    upstream.use(lambda: spark)
    return upstream


@pytest.fixture
def world(spark: "SparkSession", tmp_path: Path) -> IcebergWorld:
    return IcebergWorld(spark, tmp_path)
