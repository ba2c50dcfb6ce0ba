"""Why a record has no exact row."""

from backfill_cli.contracts.decoder import Fault


class Unreadable(Exception):
    """A record, or a value in it, that cannot be read. args[0]: why, for people. fault: see `Decoded.fault`.

    member: where in the value of a column: `.x`, the member of a struct; empty for the value itself.
    """

    member = ""

    def __init__(self, why: str, fault: Fault | None = None) -> None:
        super().__init__(why)
        self.fault = fault


class Misfit(Unreadable):
    """A value of another kind than its column's: a text for a number, a number that its type cannot hold."""


class Unfit(Unreadable):
    """A text that is no number, or one that is too large."""


class Rounded(Misfit):
    """A number with a fraction in a column that is read as text, whose digits a reader of JSON would round."""
