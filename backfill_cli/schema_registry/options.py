"""The `registry` part of a config: where the schema registry is, and what it needs to let this job in."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backfill_cli.contracts.options import Example, FilePath, Secret

APICURIO = "/apis/ccompat/"
"""Of the path at which Apicurio speaks Confluent's protocol."""


class RegistryOptions(BaseModel):
    """Confluent's schema registry, or one that speaks its protocol: Apicurio, Karapace, Redpanda."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, Example("http://127.0.0.1:8081")] = Field(
        min_length=1,
        description='its address, "https://registry:8081"; several of the same registry are separated by commas. '
        "Apicurio's ends in /apis/ccompat/v7",
    )
    user: str | None = Field(default=None, description="for basic authentication, with password")
    password: Annotated[str | None, Secret()] = Field(
        default=None, description="for basic authentication, as a reference"
    )
    token: Annotated[str | None, Secret()] = Field(default=None, description="a bearer token, as a reference")
    ca: Annotated[str | None, FilePath()] = Field(
        default=None,
        description="authorities that its certificate is checked against, as a file (PEM). Default: those of this "
        "machine",
    )
    certificate: Annotated[str | None, FilePath()] = Field(
        default=None, description="this client's certificate, as a file (PEM)"
    )
    key: Annotated[str | None, FilePath()] = Field(
        default=None, description="that certificate's key, as a file (PEM). Default: the certificate's file"
    )
    key_password: Annotated[str | None, Secret()] = Field(
        default=None, description="that key's password, as a reference"
    )
    id_bytes: Literal[4, 8] = Field(
        default=4,
        description="length of the ids in records: 4, Confluent's; 8, as Apicurio's serializers before version 3 "
        "write them by default",
    )
    global_ids: bool | None = Field(
        default=None,
        description="the ids in records are global ids, as Apicurio's serializers before version 3 write by "
        "default; false: of contents (apicurio.registry.use-id = contentId). Default: false if id_bytes is 4",
    )

    @field_validator("url")
    @classmethod
    def _are_addresses(cls, told: str) -> str:
        for one in addresses(told):
            if "${" in one:  # known when something connects
                continue
            try:
                found = urlsplit(one)
                is_one = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
            except ValueError:
                is_one = False
            # What was typed is not shown: a password may stand in it.
            if not is_one or not one.isascii() or not one.isprintable() or " " in one:
                raise ValueError("must be http://host:port or https://host:port; several are separated by commas")
            if "@" in found.netloc:
                raise ValueError("give user and password as options of their own")
            if found.query or found.fragment:
                raise ValueError("must end with the path: leave out what follows ? or #")
        return told

    @field_validator("token")
    @classmethod
    def _is_one_word(cls, told: str | None) -> str | None:
        if told is not None and not (told.isascii() and told.isprintable() and told):
            raise ValueError("must be one line of ASCII")  # it is a header's
        return told

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password go together")
        if self.user is not None and self.token is not None:
            raise ValueError("give user and password, or token")
        if self.certificate is None and (self.key is not None or self.key_password is not None):
            raise ValueError("certificate: name the certificate that the key is of")
        if self.id_bytes == 8 and self.global_ids is None:
            raise ValueError("id_bytes: with 8, set global_ids = true, or false where use-id is contentId")
        own = [one for one in addresses(self.url) if APICURIO not in one and "${" not in one]
        if self.global_ids and own:
            raise ValueError(f"global_ids: these are Apicurio's, whose url ends in {APICURIO}v7")
        files = {"ca": self.ca, "certificate": self.certificate}
        if any(files.values()) and any(one.startswith("http://") for one in addresses(self.url)):
            raise ValueError(f"{' and '.join(name for name, one in files.items() if one)}: for https only")
        return self


def addresses(url: str) -> tuple[str, ...]:
    """Each of the addresses, without the slash at its end."""
    return tuple(one.strip().rstrip("/") for one in url.split(","))
