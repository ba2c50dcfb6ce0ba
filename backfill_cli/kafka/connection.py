"""How a cluster is reached: the settings of the client's consumers, producers and admin clients."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal, Protocol

from backfill_cli.kafka.client_properties import PRODUCER_PROPERTIES, SECRETS

_OF_CONSUMERS = ("fetch.", "queued.", "check.crcs", "allow.auto.create.topics")
"""How settings begin that only consumers accept."""


class Reached(Protocol):
    """The options of how a cluster is reached. at: where they are in the config, for errors."""

    @property
    def at(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def isolation(self) -> str: ...
    @property
    def options(self) -> Mapping[str, str]: ...


class Connection:
    """How to reach the cluster: the client's settings. Never shown: they hold secrets."""

    def __init__(self, options: Reached, rights: str = "Read and Describe the topic") -> None:
        self.rights = rights
        self.at, self.servers = options.at, options.bootstrap_servers
        self.isolation = options.isolation
        self._told = dict(options.options)

    def __repr__(self) -> str:
        return f"Connection({self.servers})"

    def of_all_records(self) -> "Connection":
        """The same for records of open and aborted transactions, too."""
        found = copy(self)
        found.isolation = "read_uncommitted"
        return found

    def settings(self, of: Literal["consumer", "producer", "admin"]) -> dict[str, Any]:
        """Those that a client of this kind accepts."""
        mine = {
            "bootstrap.servers": self.servers,
            "client.id": "backfill",
            "allow.auto.create.topics": False,
            # refused connections are tried again soon: a broker that restarts is back within seconds
            "reconnect.backoff.max.ms": 2000,
            **self._told,
        }
        if of != "producer":
            mine = {name: value for name, value in mine.items() if name not in PRODUCER_PROPERTIES}
        if of != "consumer":
            mine = {name: value for name, value in mine.items() if not name.startswith(_OF_CONSUMERS)}
        return mine

    def scrubbed(self, text: str) -> str:
        """The text without any secret of these settings."""
        for name in SECRETS & self._told.keys():
            if self._told[name]:
                text = text.replace(self._told[name], "…")
        return text
