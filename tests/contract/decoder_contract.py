"""What every format of records must do. Subclass `DecoderContract`, name it `Test…`, and write what it asks for.

Everything runs in this process: no test needs Spark or a topic.
"""

import pickle
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pytest

from backfill_cli.contracts.decoder import Asked, Decode, Decoded, Decoder, Fault, Opened
from backfill_cli.formats.schemas import arrow_type, of_ddl
from backfill_cli.model.schema import Columns

Row = dict[str, Any]
Read = tuple[str, Row, bool, tuple[Any, ...]]
"""(op, columns, whether there is an error, what stands beside it: time, fault, columns)"""


class DecoderContract:
    """decoder, and `record`: to be given. The others describe what the format can hold."""

    decoder: ClassVar[Decoder]
    columns: ClassVar[str] = "id BIGINT, note STRING"
    rows: ClassVar[Sequence[Row]] = (
        {"id": 1, "note": "a"},
        {"id": -(2**63), "note": "übel"},
        {"id": 2**63 - 1, "note": "x" * 300},
    )
    options: ClassVar[Mapping[str, Any]] = {}

    def record(self, row: Row) -> bytes:
        """The record of a row, which can lack a column or have others, all of text."""
        raise pytest.UsageError("a DecoderContract needs `record`")

    def scalar(self, value: int) -> bytes | None:
        """The record of one whole number; None if the format has none."""
        return None

    has_names: ClassVar[bool] = True
    """Whether a record says which columns it has."""

    @cached_property
    def records(self) -> list[bytes]:
        return [self.record(row) for row in self.rows]

    @cached_property
    def declared(self) -> Columns:
        return of_ddl(self.columns)

    def read(self, records: Sequence[bytes | None], decode: Decode | None = None) -> list[list[Read]]:
        """What each record becomes."""
        decode = decode or self.decode()
        found = decode(records)
        self.require_form(found, decode, len(records))
        of_record: list[list[Read]] = [[] for _ in records]
        for n, i in enumerate(range(len(records)) if found.record is None else found.record.to_pylist()):
            row = {name: column[n].as_py() for name, column in found.columns.items()}
            beside = {name: column[n].as_py() for name, column in found.beside.items()}
            op, ms, error, fault = (
                None if one is None else one[n].as_py() for one in (found.op, found.ms, found.error, found.fault)
            )
            assert error is None or not any(value is not None for value in row.values()), "a fault has no values"
            of_record[i].append((op or "U", row, error is not None, (ms, fault, beside)))
        return of_record

    def require_form(self, found: Decoded, decode: Decode, records: int) -> None:
        """As `Decoded` says it."""
        lengths = {len(one) for one in (*found.columns.values(), *found.beside.values())}
        lengths |= {
            len(one) for one in (found.record, found.op, found.ms, found.error, found.fault) if one is not None
        }
        assert len(lengths) == 1, "all arrays are equally long"
        if not self.decoder.changes and not self.reads_keys:
            assert lengths == {records}, "a row for each record"
            assert found.record is None or found.record.to_pylist() == list(range(records))
        elif found.record is not None:
            at = found.record.to_pylist()
            assert at == sorted(at), "rows are in the order of their records"
        ops = {"U", "K"} if self.reads_keys else {"U", "D", "T"}
        assert set(found.op.to_pylist() if found.op is not None else ()) <= ops
        assert set(found.fault.to_pylist() if found.fault is not None else ()) <= {None, *map(str, Fault)}
        types = {name: column.type for name, column in found.columns.items()}
        assert types == {name: arrow_type(column["type"]) for name, column in self.declared.items()}
        assert set(found.beside) == set(decode.beside)

    @property
    def reads_keys(self) -> bool:
        """Whether a record can be one that its own key deletes, or none of a row."""
        return getattr(self.decoder, "reads_keys", False)

    def opened(self, asked: Asked, columns: Columns) -> Opened:
        found = self.decoder.columns(asked, lambda: self.records)
        assert {n: c["type"] for n, c in found.columns.items()} == {n: c["type"] for n, c in columns.items()}
        return self.decoder.open(asked, found.columns, found.facts)

    def asked(self, **more: Any) -> Asked:
        key = ("id",) if self.decoder.changes else ()
        return Asked("topic 't'", "t", "t", key, self.declared, self.options, "upstream.value", **more)

    def decode(self, **more: Any) -> Decode:
        return self.opened(self.asked(**more), self.declared).decode(lambda: self.records)

    # The tests

    def test_it_knows_no_options_of_its_own(self) -> None:
        assert self.decoder.options <= {"timestamps", "decimals", "tables", "encoding"}

    def test_a_record_is_its_row(self) -> None:
        found = [[one[:3] for one in of_record] for of_record in self.read(self.records)]
        assert found == [[("U", row, False)] for row in self.rows]

    def test_no_records_are_no_rows(self) -> None:
        assert self.read([]) == []

    def test_a_record_without_a_value_is_a_row_of_nulls_or_no_change(self) -> None:
        nothing = (
            []
            if self.decoder.changes or self.reads_keys
            else [("U", dict.fromkeys(self.declared), False, (None, None, {}))]
        )
        assert self.read([None, self.records[0], None])[::2] == [nothing, nothing]

    def odd(self) -> list[bytes | None]:
        """Records of all kinds: good ones, their beginnings, some with a byte changed, and noise."""
        chance = random.Random(1)
        found: list[bytes | None] = [None, *self.records, b"", b"\x00", b"\xff\xfe\xfd", b"[" * 5_000, b" "]
        for record in self.records:
            found += [record[:end] for end in range(min(len(record), 80))]
            for _ in range(20):
                at = chance.randrange(len(record))
                found.append(record[:at] + chance.randbytes(1) + record[at + 1 :])
        chance.shuffle(found)
        return found

    def test_what_cannot_be_read_is_an_error_beside_the_others(self) -> None:
        """It never raises: one record would stop all. And what is read does not depend on its neighbours."""
        records = self.odd()
        singly = [one for record in records for one in self.read([record])]
        for size in (7, len(records)):
            parts = [records[at : at + size] for at in range(0, len(records), size)]
            together = [one for part in parts for one in self.read(part)]
            assert together == singly, f"{size} records at once"

    def test_it_is_sent_to_workers(self) -> None:
        decode = self.decode()
        sent: Decode = pickle.loads(pickle.dumps(decode))
        assert self.read(self.records, sent) == self.read(self.records, decode)

    def test_rows_that_change_a_snapshots_have_its_columns(self) -> None:
        """A column that a record leaves out would become NULL, a new one would be lost."""
        if not self.has_names:
            pytest.skip("a record does not say which columns it has")
        row, required = self.rows[0], frozenset(self.declared)
        decode = self.decode(whole=(frozenset({"seen"}), required))
        less = [{column: value for column, value in row.items() if column != name} for name in required]
        records = [self.record(one) for one in (row, {**row, "seen": "1"}, {**row, "new": "2"}, *less)]
        found = [[bad for _, _, bad, _ in one] for one in self.read(records, decode)]
        assert found == [[False], [False], [True], *([True] for _ in less)]

    def test_a_scalar_is_the_one_column_of_a_key(self) -> None:
        scalar = self.scalar(5)
        if scalar is None:
            pytest.skip("this format has no scalars")
        key = of_ddl("id BIGINT")
        asked = Asked("topic 't'", "t", "t", ("id",), key, self.options, "upstream.key", of_keys=True)
        found = self.decoder.columns(asked, lambda: [scalar])
        decoded = self.decoder.open(asked, found.columns, found.facts).decode(lambda: [scalar])([scalar, None])
        assert decoded.columns["id"].to_pylist() == [5, None]
        assert decoded.error is None or decoded.error.null_count == 2
