"""Change files as Kafka Connect's sinks lay them out: a log for each partition of a topic, in offset order.

`partition=0/orders+0+0000000120.json`, or by time: `year=2026/month=01/day=31/orders+0+0000000120.json`, or
`2026/01/31/`. A file's name says topic, partition and the offset of its first record (of HDFS, of its last one,
too). These folders say what the names say, or when the records were written, which is no order. Folders by the
value of a field divide a partition's records without regard to their order, and are refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from backfill_cli.errors import START_OVER, BadData, in_config
from backfill_cli.formats.listing import File

_NAME = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>[0-9]+)\+(?P<first>[0-9]+)(?:\+(?P<last>[0-9]+))?(?:\.[^+]*)?"
)
_ONE_OF_TWO = (
    "remove the one with fewer records: a connector that starts again can write the same records another time; "
    "if the job has applied that one, " + START_OVER
)
_BY_TIME = (
    'write the topic again with timestamp.extractor = "Wallclock" in the connector, or without folders by time; '
    "then " + START_OVER + " with these files"
)
_BESIDE = re.compile(r"[^+]+\+[0-9]+\+[0-9]+\.(?P<what>keys|headers)\.(?P<ending>.+)")
_FOLDER = re.compile(r"partition=(?P<partition>[0-9]+)")
_TIMES = re.compile(
    "y|yy|yyyy|year|m|mm|month|d|dd|day|h|hh|hr|hour|min|minute|sec|second|dt|ds|date|ts|time|datetime|timestamp",
    re.IGNORECASE,
)
"""Names of folders by time: Connect's own, and those that people give them (path.format)."""

_TIME = re.compile(r"[0-9]+(?:[-_:.T][0-9]+)*Z?")
_PLAIN_TIME = re.compile(r"[0-9]{4}(?:[-_:./T]?[0-9]{2}|[-_:./T][0-9])*Z?")
_BY_FIELD = (
    in_config("set upstream.changes.path to the topic's own folder")
    + "; if Kafka Connect's FieldPartitioner made the folder, write the topic again with its DefaultPartitioner, "
    "then " + START_OVER + " with these files"
)


@dataclass(frozen=True, slots=True)
class Named:
    """What a file's name says. name: without its folders. first, last: offsets; last: None if it does not say."""

    name: str
    topic: str
    partition: int
    first: int
    last: int | None = None


def named(file: File) -> Named | None:
    """What the name of a file in Connect's folders says; None for another file, or one in no folder.

    Raises BadData for one in a folder `column=value` that Connect has not named, for one of keys or headers, and
    for one of Connect's in a folder that is by neither partition nor time.
    """
    *folders, name = file.name.split("/")
    if (beside := _BESIDE.fullmatch(name)) is not None:
        raise BadData(
            f"{file.path}: {beside['what']} of records, which Kafka Connect wrote beside the records' values",
            in_config(
                "name the files of values by a pattern, as in upstream.changes.path = "
                f'"topics/orders/*/*[0-9].{beside["ending"]}"'
            ),
        )
    valued = [folder for folder in folders if "=" in folder]
    told = told_by(name)
    if not valued and (told is None or not folders):
        return None
    if told is None:
        raise BadData(
            f"{file.path}: a folder name holds a column's value ('{valued[0]}'), but the file's own name does not "
            "say topic, partition and offset, as Kafka Connect's does (orders+0+0000000120.json)",
            in_config("set upstream.changes.path to one such folder"),
        )
    for found in filter(None, map(_FOLDER.fullmatch, valued)):
        if int(found["partition"]) != told.partition:
            raise BadData(
                f"{file.path}: its name says partition {told.partition}, its folder {found[0]}",
                "move it to the folder of its partition, or rename it",
            )
    _refuse_fields(file, [folder for folder in folders if folder != told.topic])
    return told


def _refuse_fields(file: File, folders: Sequence[str]) -> None:
    """Raises BadData for a file in a folder that is by neither partition nor time."""
    plain = [folder for folder in folders if "=" not in folder]
    other = [folder for folder in folders if "=" in folder and not _by_partition_or_time(folder)]
    if plain and not _PLAIN_TIME.fullmatch("/".join(plain)):
        other += ["/".join(plain)]
    if other:
        raise BadData(
            f"{file.path}: the folder '{other[0]}' is by neither partition nor time: what folders by another "
            "value hold of a partition has no order",
            _BY_FIELD,
        )


def _by_partition_or_time(folder: str) -> bool:
    name, _, value = folder.partition("=")
    return bool(_FOLDER.fullmatch(folder) or (_TIMES.fullmatch(name) and _TIME.fullmatch(value)))


def told_by(name: str) -> Named | None:
    """What a name without folders says; None if it is not one of Connect's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    last = None if found["last"] is None else int(found["last"])
    return Named(name, found["topic"], int(found["partition"]), int(found["first"]), last)


def other_topic(file: File, topic: str, before: str) -> BadData:
    return BadData(
        f"{file.path}: changes of topic '{topic}', in a folder that has files of topic '{before}'",
        in_config("set upstream.changes.path to the folder of one topic"),
    )


def twice(one: str, other: str) -> BadData:
    return BadData(
        f"{other}: the same partition and first offset as {one}",
        _ONE_OF_TWO,
    )


def refuse_equal_offsets(table: str, names: Sequence[str]) -> None:
    """Raises BadData for two files of a partition that begin with one offset. names: in order."""
    for one, other in pairwise(names):
        told, after = told_by(one), told_by(other)
        if told is not None and after is not None and told.first == after.first:
            raise BadData(
                f"table '{table}': {one} and {other} begin with the same offset of the same partition", _ONE_OF_TWO
            )


def is_by_time(folder: str) -> bool:
    """Whether the next file of a partition can be in another folder than this one."""
    return any(not _FOLDER.fullmatch(part) for part in folder.split("/") if part)


def must_count(name: str) -> bool:
    """Whether a file's name does not say its last offset."""
    told = told_by(name)
    return told is not None and told.last is None


def refuse_interleaved(table: str, one: str, shown: str, records: int, other: File) -> None:
    """Raises BadData for a file that has later offsets than the first one of the next file of its partition.

    Where its name does not say its last offset, and none is missing, these are all such files: each has its
    records in the order of their offsets. one: its name. shown: it, in messages. records: how many it has.
    """
    told, after = told_by(one), told_by(other.name)
    if told is None or after is None:
        return
    last = told.first + records - 1 if told.last is None else told.last
    if last >= after.first:
        has = f"{records:,} records from offset {told.first} on" if told.last is None else f"offset {last}"
        raise BadData(
            f"table '{table}': {shown} has {has}, so some of them come after offset {after.first}, with which "
            f"{other.path} begins: files that hold offsets in turn have no order",
            _BY_TIME,
        )
