"""What failed and was tried again, as values: `status` and metrics count transient failures by them."""

import errno
from collections.abc import Iterator, Mapping
from itertools import islice

from backfill_cli.errors import BackfillError, Transient

MOST = 32
"""Causes that are told apart: each is a time series, and none is forgotten while a run lasts."""

OTHERS = "others"
LONGEST = 20  # chain of causes, which can be a circle


def cause_of(error: BaseException) -> str:
    """The first code along `__cause__`: an SQLSTATE, a name of Kafka's, or of an errno; else a class.

    That is the class of the first error that is not ours, or of `error` if all are. Only letters, digits and `_`.
    """
    raised = list(islice(_along(error), LONGEST))
    code = next(filter(None, map(_code, raised)), "")
    return code or type(next((one for one in raised if not isinstance(one, BackfillError)), error)).__name__


def counted(before: Mapping[str, int], cause: str) -> dict[str, int]:
    """One more of this cause; of the others, once there are as many as are told apart."""
    of = cause if cause in before or len(before) < MOST else OTHERS
    return {**before, of: before.get(of, 0) + 1}


def _along(error: BaseException) -> Iterator[BaseException]:
    one: object = error
    while isinstance(one, BaseException):
        yield one
        one = one.__cause__ or getattr(one, "reason", None)  # urllib has it there


def _code(error: BaseException) -> str:
    if isinstance(error, Transient):
        return error.code
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "")
    state = str(getattr(error, "sqlstate", None) or "")  # both of PostgreSQL's clients have it
    return state if len(state) == 5 and state.isalnum() else ""  # ADBC's is five NULs where there is none
