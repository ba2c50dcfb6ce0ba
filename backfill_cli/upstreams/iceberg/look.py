"""What `init` finds out about Iceberg tables, from their metadata: columns, key, what start would refuse."""

from collections.abc import Mapping
from dataclasses import replace

from backfill_cli.contracts import FoundTable, Looked, Named, TableSpec, Told, require_columns, without_config
from backfill_cli.lake.iceberg.metadata import Held, summary_of
from backfill_cli.lake.iceberg.places import SPARK_CATALOG
from backfill_cli.lake.look import key_of, refusal, tables_of, together
from backfill_cli.model.units import spell_count
from backfill_cli.spark.beside import CATALOG
from backfill_cli.upstreams.iceberg.log import IcebergSourceTable

_CORRECT = (
    "name the table's folder: --from lake/orders; or its name in a catalog, and the catalog's properties: "
    "--from 'iceberg:CATALOG.SCHEMA.TABLE?type=rest&uri=http://HOST:8181'"
)


def look(named: Named) -> Looked:
    """What the tables show. A catalog's properties follow its table's name: `lake.db.orders?type=rest&uri=…`."""
    text, conf = _catalog(named.text)
    written, shown = _catalog(named.written)
    named = replace(named, text=text, written=written)
    with without_config(_CORRECT):
        found = [_found(named, name, conf) for name in tables_of(named)]
    told = {name: Told(value) for name, value in shown.items()}
    return Looked(
        [table for table, _ in found], {"table": Told(written)}, together([said for _, said in found]), told
    )


def _catalog(text: str) -> tuple[str, Mapping[str, str]]:
    """(the table's name, the settings of its catalog); a path is a path, whatever it contains."""
    name, _, query = text.partition("?")
    if "/" in name or not query:
        return text, {}
    at = CATALOG + name.partition(".")[0]
    pairs = (one.partition("=") for one in query.split("&"))
    return name, {at: SPARK_CATALOG} | {f"{at}.{key}": value for key, _, value in pairs}


def _found(named: Named, name: str, conf: Mapping[str, str]) -> tuple[FoundTable, tuple[str, ...]]:
    source = IcebergSourceTable(TableSpec(name, named.key, False), named.text, lambda: conf)
    held = source.now()
    fields = held.told.schema().fields
    identifies = [one.name for one in fields if one.field_id in held.told.schema().identifier_field_ids]
    columns = [one.name for one in fields]
    require_columns(named, columns)
    table = FoundTable(name, key_of(named, identifies, columns))
    source = IcebergSourceTable(TableSpec(name, tuple(table.key.value or ()), False), named.text, lambda: conf)
    said = (
        f"Iceberg table {source.place}: format version {held.told.format_version}, {_rows(held)}, "
        f"{spell_count(len(columns), 'column')}, {spell_count(len(held.told.snapshots), 'snapshot')}"
    )
    return table, (said, *refusal(source, table))


def _rows(held: Held) -> str:
    if held.main is None:
        return "no rows yet"
    count = summary_of(held.main).get("total-records")
    return "rows not counted" if count is None else spell_count(int(count), "row")
