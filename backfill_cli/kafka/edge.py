"""The Kafka client's errors become BackfillErrors here, which name the servers and never a secret."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from backfill_cli.errors import BackfillError, Fatal, Hint, Transient, UsageError, in_config, shell

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

INSTALL = shell("pip install 'backfill-cli[kafka]'")

_UNTRUSTED = "certificate verify failed"  # OpenSSL's words

_LOG = logging.getLogger("backfill.kafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


def client() -> Any:
    """The client's package. Raises UsageError when it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as exc:
        raise UsageError("Kafka needs confluent-kafka, which is not installed", INSTALL) from exc
    return confluent_kafka


class Complaints:
    """The last complaint of the client's threads: a call that times out does not itself say why."""

    def __init__(self) -> None:
        self.last = ""
        self.code = 0

    def __call__(self, error: "KafkaError") -> None:
        # "all brokers down" follows the reason and says less
        if error.code() != error._ALL_BROKERS_DOWN or not self.last:
            self.last, self.code = error.str(), error.code()

    def forget(self) -> None:
        """A call was answered: what was wrong before is not why a later one fails."""
        self.last, self.code = "", 0

    def settings(self) -> dict[str, Any]:
        """Settings with which a client reports here instead of to the terminal."""
        return {"error_cb": self, "logger": _LOG}


class Servers(Protocol):
    """The servers that an error names, where the config has them, and how secrets are removed from its text.

    rights: those that the user needs.
    """

    servers: str
    at: str
    rights: str

    def scrubbed(self, text: str) -> str: ...


def ours(error: "KafkaError", of: Servers, what: str, complaints: Complaints | None = None) -> BackfillError:
    """The BackfillError for an error of the client. what: what was being done, for people."""
    K = client().KafkaError
    last = complaints.last if complaints is not None else ""
    codes = {error.code(), complaints.code if complaints is not None else 0}
    where, said = f"{of.servers}: {what}", of.scrubbed(last or error.str())
    if codes & {K._AUTHENTICATION, K.SASL_AUTHENTICATION_FAILED}:
        return Fatal(f"{where}: access denied: {said}", in_config(f"check {of.at}.options: sasl.*"))
    # a server that hangs up first gives librdkafka's code for a lost connection to the same failure
    if codes & {K._SSL} or _UNTRUSTED in said:
        return Fatal(f"{where}: no TLS connection: {said}", in_config(f"check {of.at}.options: ssl.*"))
    text = of.scrubbed(error.str())
    denied = {K.TOPIC_AUTHORIZATION_FAILED, K.CLUSTER_AUTHORIZATION_FAILED, K.GROUP_AUTHORIZATION_FAILED}
    if error.code() in denied | {K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}:
        return Fatal(f"{where}: {text}", f"give this user the right to {of.rights}")
    if error.code() in {K._INVALID_ARG, K.UNSUPPORTED_VERSION, K.INVALID_REQUEST, K._UNSUPPORTED_FEATURE}:
        return Fatal(f"{where}: {text}", in_config(f"check {of.at}.options"))
    because = f" ({said})" if last and last != error.str() else ""
    return Transient(f"{where}: {text}{because}", unreachable(of), error.name())


def unreachable(of: Servers) -> Hint:
    """The hint where no broker answers."""
    return in_config(f"start the broker, or correct {of.at}.bootstrap_servers")


@contextmanager
def asking(of: Servers, what: str, complaints: Complaints | None = None) -> Iterator[None]:
    """An error of the client inside is raised as a BackfillError."""
    try:
        yield
    except client().KafkaException as exc:
        raise ours(exc.args[0], of, what, complaints) from exc
