"""Refuses texts and bytes whose partition's folder would have too long a name on this machine's disks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from backfill_cli.contracts import SinkTable
from backfill_cli.formats.listing import local_path
from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.lake.partitions import LONGEST_NAME, refuse_partitions
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyspark.sql import Column, DataFrame

_DATA = ("write.data.path", "write.folder-storage.path")


def require_representable(frames: Iterable["DataFrame"], table: SinkTable, place: str, held: Held) -> None:
    """Raises BadData naming up to five rows whose partitions cannot be folders; see `refuse_partitions`."""
    folders = next((held.told.properties[name] for name in _DATA if name in held.told.properties), "")
    if "://" in local_path(folders or held.told.location):
        return
    fields = {held.told.schema().find_column_name(one.source_id): one for one in held.told.spec().fields}
    tests = {
        name: test for name, one in fields.items() if name and (test := _too_long(held, name, one)) is not None
    }
    refuse_partitions(frames, table, place, tests, "what is too long for a folder's name")


def _too_long(held: Held, name: str, part: "PartitionField") -> "Column | None":
    """Under which condition the name is too long; None if values are not texts, or always short enough."""
    from pyiceberg.transforms import IdentityTransform, TruncateTransform
    from pyiceberg.types import BinaryType, FixedType, StringType
    from pyspark.sql import functions as F

    value = F.col(".".join(map(backticked, name.split("."))))
    kind = held.told.schema().find_type(part.source_id)
    if not isinstance(kind, StringType | BinaryType | FixedType):
        return None
    match part.transform:
        case IdentityTransform():
            pass
        case TruncateTransform() as cut:
            value = F.substring(value, 1, cut.width)
        case _:
            return None
    text = value if isinstance(kind, StringType) else F.base64(value)
    room = LONGEST_NAME - len(f"{quote_plus(part.name)}=")
    return F.coalesce(F.octet_length(F.url_encode(text)) > room, F.lit(False))
