"""What `init` finds out about Delta tables, from their logs: columns, rows, whether changes can be followed."""

from backfill_cli.contracts import FoundTable, Looked, Named, TableSpec, Told, require_columns
from backfill_cli.lake.delta import is_name
from backfill_cli.lake.delta.commits import FEED, columns_of_delta
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import add_actions, column_values
from backfill_cli.lake.look import key_of, refusal, tables_of, together
from backfill_cli.model.units import spell_count, spell_size
from backfill_cli.upstreams.delta.upstream import DeltaSourceTable


def look(named: Named) -> Looked:
    """What the tables show; nothing of those that are named by catalog, which only Spark can find."""
    names = tables_of(named)
    options = {"table": Told(named.written)}
    if is_name(named.text):
        tables = [FoundTable(name, key_of(named, (), ())) for name in names]
        return Looked(tables, options, (f"{named.text}: a table of a catalog, which start looks up",))
    found = [_found(named, name) for name in names]
    return Looked([table for table, _ in found], options, together([said for _, said in found]))


def _found(named: Named, name: str) -> tuple[FoundTable, tuple[str, ...]]:
    where = Where.of(named.text, name)
    opened = where.open()
    columns, _ = columns_of_delta(opened.schema().to_json())
    require_columns(named, [*columns])
    files = add_actions(opened)
    counts = column_values(files, "num_records")
    rows = "rows not counted" if None in counts else spell_count(sum(counts), "row")
    size = spell_size(sum(column_values(files, "size_bytes")))
    feed = "on" if opened.metadata().configuration.get(FEED, "").lower() == "true" else "off"
    held = f"{rows}, {size}, {spell_count(len(columns), 'column')}"
    said = f"Delta table {where.shown}: version {opened.version()}, {held}, change data feed {feed}"
    table = FoundTable(name, key_of(named, (), [*columns]))
    source = DeltaSourceTable(TableSpec(name, named.key, False), lambda: where)
    return table, (said, *refusal(source, table))
