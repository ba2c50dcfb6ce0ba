"""When a snapshot is to be read (`throttle.finish_by`): the rate that suffices for it, and whether it can be met.

Pure, like the strategies: judged anew at each barrier, by what is left and what was read lately.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from backfill_cli.model.job import Control
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import TablePace

AIM = 0.9
"""Of the whole time: nothing is read any more in the last tenth, if all goes well."""

NEARLY = 0.95
"""A measured rate that is this close to the one that is needed is it. Being late ends as far below the limit."""

FLOOR = 1_000.0
"""Rows per second: what a slower rate would save an upstream is less than what its barriers cost."""

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def finish_ms(text: str, since_ms: int) -> int:
    """The moment that a deadline means, in milliseconds since 1970, by this machine's zone unless it names one.

    text: a time of the day, the first one after `since_ms`, or a date and a time. Raises ValueError.
    """
    since = datetime.fromtimestamp(since_ms / 1000)
    if (told := _TIME.fullmatch(text)) is not None:
        at = since.replace(hour=int(told[1]), minute=int(told[2]), second=0, microsecond=0)
        at = at if at > since else at + timedelta(days=1)
    elif re.fullmatch(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d.*", text):
        at = datetime.fromisoformat(text)
    else:
        raise ValueError("must be a time of the day, or a date and a time")
    return int(at.timestamp() * 1000)  # without a zone, of this machine


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a deadline means now.

    rate: rows/s of the snapshot that are enough; None: as fast as it goes. late: whether it cannot be met at the
    present rate; late_s: by about how much it is missed, None where nobody can say. cause: what limits the job
    then.
    """

    finish_ms: int
    rate: float | None = None
    late: bool = False
    late_s: float | None = None
    cause: Limit | None = None

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Outlook":
        """What the codec wrote, parsed as JSON."""
        return Outlook(**{**told, "cause": told["cause"] and Limit.read(told["cause"])})


@dataclass(frozen=True, slots=True)
class Deadline:
    """since_ms: when the job was created. floor: rows/s; it asks for no lower rate."""

    finish_ms: int
    since_ms: int
    floor: float = FLOOR

    @property
    def aim_ms(self) -> float:
        return self.since_ms + (self.finish_ms - self.since_ms) * AIM

    def judged(
        self,
        before: Outlook | None,
        left: float | None,
        measured: float | None,
        control: Control,
        now_ms: int,
        tables: Sequence[TablePace] = (),
    ) -> Outlook:
        """The outlook at this barrier. before: that of the last one.

        left: rows of the snapshot that are not read, None if that is not known. measured: rows/s that were read
        lately. control: in force; its rate prevails, whatever is needed; so do those of single tables.
        """
        now = Outlook(self.finish_ms)
        time_s = (self.finish_ms - now_ms) / 1000
        rates = [rate for rate in (measured, control.pace) if rate is not None]
        takes_s = None
        if left is not None and rates:
            takes_s = left / min(rates) if min(rates) > 0 else math.inf
        if tables:
            takes_s = max(takes_s or 0.0, *(one.left_s for one in tables))
        if time_s <= 0:
            return replace(now, late=True, late_s=None if takes_s in (None, math.inf) else takes_s - time_s)
        if left is None:
            return now
        if (aim_s := (self.aim_ms - now_ms) / 1000) > 0:
            behind = measured is not None and measured < left / aim_s * NEARLY
            now = replace(now, rate=None if behind else max(left / aim_s, self.floor))
        if takes_s is None or takes_s <= time_s * (NEARLY if before is not None and before.late else 1.0):
            return now
        return replace(now, late=True, late_s=None if takes_s == math.inf else takes_s - time_s)
