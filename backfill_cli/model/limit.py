"""What limits a job, or why it ended, as a value: shown by `status`, stored in the catalog."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from backfill_cli.errors import Hint, Transient


class Kind(StrEnum):
    """The name under which it is shown."""

    LIMITED = "limited by"
    NOW = "now"
    PAUSED = "paused"
    WAITING = "waiting"
    AWAITING_LIVE = "awaiting live"
    FOLLOWING = "following"
    CATCHING_UP = "catching up"
    NOT_CONVERGING = "not converging"
    NO_RUNNER = "no runner"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Limit:
    """text: what it is, after its kind. hint: what to type, to `to`."""

    text: str
    kind: Kind = Kind.LIMITED
    hint: Hint = Hint()  # noqa: RUF009
    to: str = "continue"

    @staticmethod
    def of(said: "Limit | str") -> "Limit":
        return said if isinstance(said, Limit) else Limit(said)

    @staticmethod
    def cause(error: Transient) -> "Limit":
        """What is waited for, and what would end the wait."""
        return Limit(error.message, hint=error.hint)

    @staticmethod
    def read(told: "Mapping[str, Any] | str") -> "Limit":
        """What the codec wrote, parsed as JSON; a text is that of an older version."""
        if isinstance(told, str):
            return Limit(told)
        return Limit(told["text"], Kind(told["kind"]), Hint.read(told["hint"]), told["to"])

    @property
    def columns(self) -> tuple[str, str | None]:
        """As the catalog keeps it: in words, and as JSON unless the words are all."""
        value = None if self == Limit(self.text) else json.dumps(asdict(self), ensure_ascii=False)
        return self.said, value

    @staticmethod
    def stored(said: str, value: str | None) -> "Limit":
        return Limit(said) if value is None else Limit.read(json.loads(value))

    @property
    def said(self) -> str:
        """Without what to type."""
        if self.kind in (Kind.LIMITED, Kind.NOW, Kind.ENDED):
            return self.text
        return f"{self.kind}{' ' if self.kind is Kind.PAUSED else ': '}{self.text}"

    def __str__(self) -> str:
        """`paused by cli; to continue: backfill resume orders`."""
        return f"{self.said}; to {self.to}: {self.hint}" if self.hint else self.said
