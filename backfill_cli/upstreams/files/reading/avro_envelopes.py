"""Records of Avro files as lines of JSON with a schema block, as Kafka Connect's JsonConverter writes them.

For planning, which looks at the first and the last ones; workers read the records themselves.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from backfill_cli.decode.tokens import written
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.files.reading.avro_files import KIND, require_package, sound

if TYPE_CHECKING:
    from backfill_cli.decode.avro import Avro


def schema_of(where: Place, file: File) -> str:
    """The schema in a file's header, as text. Raises BadData naming a file that has none."""
    require_package()
    from backfill_cli.decode.avro import container

    with sound(file.path), reading(file.path, KIND), where.fs.open_input_stream(file.path) as source:
        return container.header(source).schema


def members(where: Place, file: File) -> list[str]:
    """The names of a record's members."""
    from backfill_cli.decode import avro

    with sound(file.path):
        return [str(one["field"]) for one in avro.reader(schema_of(where, file)).schema.get("fields") or ()]


def count(where: Place, file: File) -> int:
    """How many records a file has."""
    require_package()
    from backfill_cli.decode.avro import container

    with sound(file.path), reading(file.path, KIND), where.fs.open_input_stream(file.path) as source:
        return sum(number for number, _ in container.blocks(source, container.header(source)))


def forward(where: Place, file: File) -> Iterator[str]:
    """The records in order, read as they are asked for."""
    with sound(file.path):
        for line in _lines(where, file):
            yield line()


def last(where: Place, file: File) -> Iterator[str]:
    """The records from the last one backwards. The file is read whole into memory."""
    with sound(file.path):
        for line in reversed([*_lines(where, file)]):
            yield line()


def _lines(where: Place, file: File) -> Iterator[Callable[[], str]]:
    """What makes the line of each record, in order."""
    require_package()
    from backfill_cli.decode import avro
    from backfill_cli.decode.avro import container

    with reading(file.path, KIND), where.fs.open_input_stream(file.path) as source:
        head = container.header(source)
        reader = avro.reader(head.schema)
        block = json.dumps(reader.schema)
        for records in container.records(reader.type, container.blocks(source, head)):
            yield from (partial(_line, reader, block, record) for record in records)


def _line(reader: "Avro", block: str, record: bytes) -> str:
    return f'{{"payload":{written(reader.token(record))},"schema":{block}}}'


def shown(line: str) -> str:
    """A line without its schema block."""
    return line.removeprefix('{"payload":').partition(',"schema":{')[0]
