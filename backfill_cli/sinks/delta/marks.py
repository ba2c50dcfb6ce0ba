"""A table's marker: the table's own transaction number of an application, and which attempt made it.

Delta writes the number in the commit that writes the rows, skips a commit whose number is not greater, and
refuses one that another commit with a number of this application overtook. A number is a token, then an epoch:
whoever has an older token cannot commit. Which attempt made an epoch is a file beside, written before its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from backfill_cli.errors import Fatal, Held, StateConflict, Transient
from backfill_cli.formats.delta.commits import stamp
from backfill_cli.formats.delta.edge import Where, delta_errors
from backfill_cli.formats.lake.blobs import Blobs
from backfill_cli.formats.lake.state import Claim
from backfill_cli.model.checkpoint import Marker

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

EPOCH_BITS = 42
"""Of an epoch, milliseconds since 1970: up to the year 2109."""
LAST_TOKEN = 2 ** (63 - EPOCH_BITS) - 1
TRIES = 20


def number_of(token: int, epoch: int) -> int:
    """Greater for a newer token, and of one token for a newer epoch. Raises Fatal beyond 2 million runners."""
    if token > LAST_TOKEN or epoch >= 2**EPOCH_BITS:
        raise Fatal(
            f"token {token} or epoch {epoch} is too great for a Delta table's transaction number",
            "correct this machine's clock; or drop the job and start over",
        )
    return token << EPOCH_BITS | epoch


def epoch_of(number: int) -> int:
    return int(number & (2**EPOCH_BITS - 1))


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """One table of a job as its claim names it. marks: the folder of its attempts."""

    job: str
    name: str
    claim: Claim
    where: Where
    marks: Blobs

    @property
    def app(self) -> str:
        """The application in the table's log; a later claim of the same job is another one."""
        return f"backfill/{self.job}/{self.name}/{self.claim.id}"

    def marker(self) -> Marker | None:
        """None where the table is not there. Epoch 0: claimed, and nothing committed yet."""
        found = self.versioned()
        return None if found is None else found[1]

    def marker_or_number(self) -> Marker | None:
        """The marker, its attempt empty where the folder of attempts is lost: for a table that is to go."""
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
        """The table's newest version, and token and epoch there, for who need not know the attempt."""
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
        """Whether the table's log says that the job had it: a fence does, and every epoch. It has to be there."""
        with delta_errors(self.where.shown):
            return self.where.open().transaction_version(self.app) is not None

    def mark(self, token: int, epoch: int, attempt: str, before: int) -> None:
        """This attempt is the one of (token, epoch) once a commit of that number is there.

        before: the epoch that the table is at: what is older counts no more. Raises StateConflict where another
        attempt of them was about to be committed.
        """
        name = _name(epoch, token)
        try:
            self.marks.create(name, attempt.encode())
        except FileExistsError:
            other = self.marks.read(name).decode()
            if other != attempt:
                raise StateConflict(
                    f"table {self.name!r}: epoch {epoch} was about to be committed from attempt {other}, "
                    f"not {attempt}",
                    f"backfill status {self.job}",
                ) from None
        for older in self.marks.names():
            if int(older.split("-")[0]) < before:
                self.marks.delete(older)

    def _attempt(self, epoch: int) -> str:
        """The newest token's: one that was fenced before its commit left a file that no commit followed."""
        found = [name for name in self.marks.names() if int(name.split("-")[0]) == epoch]
        if not found:
            raise StateConflict(
                f"table {self.name!r} is at epoch {epoch}, and {self.marks.root} does not say from which attempt",
                f"restore that folder, or start over: backfill drop {self.job} --with-rows --confirm {self.job}",
            )
        return self.marks.read(found[-1]).decode()

    def raise_token(self, token: int) -> None:
        """The marker carries this token; a commit with an older one is refused from here on.

        Raises Held when it carries a newer one. Nothing changes in the table but its log; a commit of others in
        between is looked at first: it may be an epoch of the runner that is fenced.
        """
        for _ in range(TRIES):
            found = self.numbered()
            if found is None or found[1] == token:
                return
            version, newest, epoch = found
            if newest > token:
                raise Held(
                    f"another runner took job {self.job!r} over: table {self.name!r} has token {newest}, "
                    f"ours is {token}",
                    f"backfill status {self.job}",
                )
            if self.write(number_of(token, epoch), version):
                return
        raise Transient(
            f"{self.where.shown}: others commit to it all the time, its token cannot be raised",
            "let them write less often",
        )

    def write(self, number: int, onto: int, files: "Sequence[AddAction]" = ()) -> bool:
        """A commit of this number, with these files and no others, as the version after `onto`.

        False where others took that version.
        """
        from deltalake import CommitProperties, Transaction, exceptions

        table = self.where.open(onto)
        how = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(self.app, number)])
        with delta_errors(self.where.shown):
            try:
                table.create_write_transaction(list(files), "append", table.schema(), commit_properties=how)
            except exceptions.CommitFailedError as exc:
                if stamp(self.where, onto + 1) is None:  # nobody took it
                    raise Fatal(
                        f"{self.where.shown}: a commit of the log alone is refused: {exc}",
                        "name another table; or give this one no features that ask every writer for more "
                        "(row tracking, in-commit timestamps, clustering)",
                    ) from exc
                return False
        return True


def marks_of(state: Blobs, job: str, claim: Claim) -> Blobs:
    return state.below(quote(job, safe="")).below(f"marks-{claim.id}")


def _name(epoch: int, token: int) -> str:
    return f"{epoch:016d}-{token:09d}.txt"
