"""A table's marker: the transaction number of our application in the table's log, and the attempt behind it.

Delta writes the number in the commit that writes the rows, skips a commit whose number is not greater, and refuses
a commit if another one with a number of this application got ahead of it. The high bits of a number are the token,
the low ones the epoch, so a runner with an older token cannot commit. The attempt of an epoch is kept in a file
outside the table, written before the epoch's rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from deltalake import CommitProperties, Transaction, exceptions
from deltalake.transaction import AddAction

from backfill_cli.contracts.refusals import refuse_old_token, written_too_often
from backfill_cli.errors import RESTORE, START_OVER, Fatal, StateConflict, command
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.commits import stamp
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.state import Claim
from backfill_cli.model.checkpoint import Marker

EPOCH_BITS = 42
"""The bits of an epoch, milliseconds since 1970: enough up to the year 2109."""
LAST_TOKEN = 2 ** (63 - EPOCH_BITS) - 1
TRIES = 20


def number_of(token: int, epoch: int) -> int:
    """A number that grows with the token, then with the epoch. Raises Fatal beyond 2 million runners."""
    if token > LAST_TOKEN or epoch >= 2**EPOCH_BITS:
        raise Fatal(
            f"commit {epoch} of runner {token} has no number that fits a Delta table's transactions",
            "correct this machine's clock; or " + START_OVER,
        )
    return token << EPOCH_BITS | epoch


def epoch_of(number: int) -> int:
    return int(number & (2**EPOCH_BITS - 1))


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """One table that a job has claimed. marks: the folder of its attempts."""

    job: str
    name: str
    claim: Claim
    where: Where
    marks: Blobs

    @property
    def app(self) -> str:
        """Our application's name in the table's log; another claim of the same job has another name."""
        return f"backfill/{self.job}/{self.name}/{self.claim.id}"

    def marker(self) -> Marker | None:
        """The marker; None if the table does not exist. Epoch 0: claimed, but nothing committed yet."""
        found = self.versioned()
        return None if found is None else found[1]

    def marker_or_number(self) -> Marker | None:
        """The marker; its attempt is empty if the folder of attempts is lost. For tables about to be dropped."""
        try:
            return self.marker()
        except StateConflict:
            found = self.numbered()
            return None if found is None else Marker(found[2], found[1], "")

    def versioned(self) -> tuple[int, Marker] | None:
        """The table's newest version, and its marker there."""
        found = self.numbered()
        if found is None:
            return None
        version, token, epoch = found
        return version, Marker(epoch, token, self._attempt(epoch) if epoch else "")

    def numbered(self) -> tuple[int, int, int] | None:
        """The table's newest version with its token and epoch, for callers that do not need the attempt."""
        if not self.where.exists():
            return None
        table = self.where.open()
        with delta_errors(self.where.shown):
            number = table.transaction_version(self.app)
        return table.version(), *self._told(number)

    def _told(self, number: int | None) -> tuple[int, int]:
        """Token and epoch of a transaction's number."""
        if number is None:
            return self.claim.token, 0
        return number >> EPOCH_BITS, epoch_of(number)

    def is_numbered(self) -> bool:
        """Whether the table's log has a number of the job: every fence and epoch writes one. It must exist."""
        with delta_errors(self.where.shown):
            return self.where.open().transaction_version(self.app) is not None

    def mark(self, token: int, epoch: int, attempt: str, before: int) -> None:
        """This attempt is recorded for (token, epoch); it counts once the table has a commit with that number.

        before: the epoch that the table is at; records of older epochs are deleted. Raises StateConflict if
        another attempt is recorded for this token and epoch.
        """
        name = _name(epoch, token)
        try:
            self.marks.create(name, attempt.encode())
        except FileExistsError:
            other = self.marks.read(name).decode(errors="replace")
            if other != attempt:
                raise StateConflict(
                    f"table {self.name!r}: commit {epoch} was about to be written from attempt {other}, "
                    f"not {attempt}",
                    command(f"status {self.job}"),
                ) from None
        for older in self.marks.names():
            if int(older.split("-")[0]) < before:
                self.marks.delete(older)

    def _attempt(self, epoch: int) -> str:
        """The attempt of the newest token: a runner that was fenced can have left a record but no commit."""
        found = [name for name in self.marks.names() if int(name.split("-")[0]) == epoch]
        if not found:
            raise StateConflict(
                f"table {self.name!r} is at commit {epoch}, which is missing from {self.marks.root}",
                RESTORE,
            )
        return self.marks.read(found[-1]).decode(errors="replace")

    def raise_token(self, token: int) -> None:
        """The marker has this token, so that a commit with an older one is refused from now on.

        Raises Held if the marker has a newer one. Changes only the table's log. If another writer commits at the
        same time the marker is read again: that commit can be an epoch of the runner that is being fenced.
        """
        for _ in range(TRIES):
            found = self.numbered()
            if found is None or found[1] == token:
                return
            version, newest, epoch = found
            refuse_old_token(self.job, self.name, token, Marker(epoch, newest, ""))
            if self.write(number_of(token, epoch), version):
                return
        raise written_too_often(self.where.shown, "its token to be raised")

    def write(self, number: int, onto: int, files: Sequence[AddAction] = ()) -> bool:
        """The version after `onto` is a commit with this number that adds these files.

        Returns False if another writer took that version.
        """
        table = self.where.open(onto)
        how = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(self.app, number)])
        with delta_errors(self.where.shown):
            try:
                table.create_write_transaction(list(files), "append", table.schema(), commit_properties=how)
            except exceptions.CommitFailedError as exc:
                if stamp(self.where, onto + 1) is None:  # no other writer took the version
                    raise Fatal(
                        f"{self.where.shown}: a commit written without Spark is refused: {exc}",
                        "name another table; or one without features that demand more of every writer "
                        "(row tracking, in-commit timestamps, clustering)",
                    ) from exc
                return False
        return True


def marks_of(state: Blobs, job: str, claim: Claim) -> Blobs:
    return state.below(quote(job, safe="")).below(f"marks-{claim.id}")


def _name(epoch: int, token: int) -> str:
    return f"{epoch:016d}-{token:09d}.txt"
