"""What a command changes in a job's definition: it waits in the inbox until a barrier with nothing in flight."""

import json
from dataclasses import dataclass, replace

from backfill_cli.model.aside import Section
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control

RATE = "throttle.rate"


@dataclass(frozen=True, slots=True)
class Change:
    """config: the job's from then on, as stored; of a table that joins, its section alone; of derived tables that
    join, a list of theirs; empty where tables leave.

    file: where that was read from; empty if not known.
    table: that joins or leaves the job; empty for neither. keys: config keys whose value changes, for display.
    into_existing: what joins may be there already. with_rows: what leaves is dropped in the sink.
    options: the part of the upstream's options that is of the table that joins alone, as JSON.
    mark: nobody else can have chosen it; what the upstream holds for the table that joins has it.
    rates: the tables whose own rate changes, and to what; None: they have none.
    refill: that makes the rows of a table right which is put back. sections: of tables that are set aside.
    derived: the derived tables that join, change or leave the job. again: those of them that the job has get
    another SELECT or key. targets: of those that leave, in their order.
    """

    config: str
    file: str = ""
    table: str = ""
    keys: tuple[str, ...] = ()
    into_existing: bool = False
    with_rows: bool = False
    options: str = "{}"
    mark: str = ""
    rates: tuple[tuple[str, float | None], ...] = ()
    refill: int | None = None
    sections: tuple[Section, ...] = ()
    derived: tuple[str, ...] = ()
    again: bool = False
    targets: tuple[str, ...] = ()

    @property
    def stored(self) -> str:
        """JSON for the inbox. `read` reads it."""
        return encode(self)

    @classmethod
    def read(cls, stored: str) -> "Change":
        return decode(cls, stored)

    def paced(self, control: Control) -> Control:
        """The control with those rates of the config that change."""
        for table, rate in self.rates:
            control = control.with_rate(table, rate)
        if RATE not in self.keys:
            return control
        return replace(control, rate=json.loads(self.config).get("throttle", {}).get("rate"))
