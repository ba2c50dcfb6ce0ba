"""Delta tables by name in a catalog of the session: Spark says where a table is, its log says the rest.

Looked up once per process: if the name is given to another table meanwhile, the table's id shows it.
"""

from collections.abc import Callable
from contextlib import suppress

from backfill_cli.errors import Fatal, UsageError, in_config, sql
from backfill_cli.lake.delta.edge import Where
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.beside import CATALOG, defined
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import backticked

OWN = "spark_catalog"
IMPLEMENTATION = "spark.sql.catalogImplementation"
_NOT_THERE = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")

Session = Callable[[], SparkSession]


def sql_of(name: str) -> str:
    return ".".join(map(backticked, name.split(".")))


def sql_at(where: Where) -> str:
    """The table of a folder."""
    return f"delta.`{where.uri.replace('`', '``')}`"


def located(spark: SparkSession, name: str) -> Where | None:
    """Where the table is; None if the catalog has none. Raises UsageError for a table of another format."""
    require_lasting(spark, name.split(".")[0])
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {sql_of(name)}").select("format", "location").toArrow().to_pylist()
    except Exception as exc:
        if any(text in str(exc) for text in _NOT_THERE):
            return None
        raise _refused(name, exc) from exc
    if detail[0]["format"] != "delta":
        raise UsageError(f"table {name}: its format is {detail[0]['format']}, not delta", "name a Delta table")
    return Where.of(detail[0]["location"], "")


def beside(spark: SparkSession, name: str) -> list[str]:
    """The tables in this table's schema, by their names; none where the catalog does not say."""
    catalog, schema, _ = name.split(".")
    with suppress(Exception):  # whatever it is, the table is missing, which the caller reports
        told = spark.sql(f"SHOW TABLES IN {backticked(catalog)}.{backticked(schema)}").toArrow().to_pylist()
        return [f"{catalog}.{schema}.{one['tableName']}" for one in told if not one["isTemporary"]]
    return []


def schema_folder(spark: SparkSession, name: str) -> str:
    """Where the catalog puts tables of this table's schema. Raises UsageError if it does not say."""
    catalog, schema, _ = name.split(".")
    require_lasting(spark, catalog)
    try:
        told = spark.sql(f"DESCRIBE SCHEMA {backticked(catalog)}.{backticked(schema)}").toArrow().to_pylist()
    except Exception as exc:
        if "SCHEMA_NOT_FOUND" in str(exc):
            schema_sql = f"{backticked(catalog)}.{backticked(schema)}"
            raise UsageError(
                f"table {name}: the catalog has no schema {schema!r}",
                "in Spark SQL: " + sql(f"CREATE SCHEMA {schema_sql}"),
            ) from exc
        raise _refused(name, exc) from exc
    found = next((one["info_value"] for one in told if one["info_name"] == "Location"), "")
    if not found:
        raise UsageError(
            f"table {name}: the catalog does not say where schema {schema!r} is, so there is no place for the "
            "state that the job keeps beside its tables",
            "name the table by its folder",
        )
    return found


def require_lasting(spark: SparkSession, catalog: str) -> None:
    """Raises UsageError for a catalog that the session does not have, or that ends with it."""
    if catalog != OWN and spark.conf.get(CATALOG + catalog, None) is None:
        raise UsageError(
            f"[spark.conf] defines no catalog {catalog!r}{defined(catalog, spark.conf.getAll)}",
            in_config(
                f"correct the catalog's name, or define it in [spark.conf]: '{CATALOG}{catalog}' = …; or name the "
                "table by its folder"
            ),
        )
    if catalog == OWN and spark.conf.get(IMPLEMENTATION, "in-memory") == "in-memory":
        raise UsageError(
            f"Spark's own catalog, {OWN}, is kept in memory here, and is lost when the session ends",
            in_config(
                f"set [spark.conf] '{IMPLEMENTATION}' = 'hive', with its metastore; or name the table by its "
                "folder"
            ),
        )


def _refused(name: str, exc: Exception) -> Exception:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(exc, PySparkException | Py4JError):
        return exc
    return Fatal(
        f"table {name}: its catalog refuses: {cause_in(str(exc))}",
        in_config(
            f"correct what [spark.conf] says of it ('{CATALOG}{name.split('.')[0]}' and its properties), "
            "or what this user may do there; or name the table by its folder"
        ),
    )
