"""Records of which a format reads key and value together, as one."""

from collections.abc import Sequence

_LENGTH = 8


def joined(key: bytes | None, value: bytes | None) -> bytes | None:
    """A record as one: the key's length, key, value; None for one that has neither."""
    if not key and not value:
        return None
    return len(key or b"").to_bytes(_LENGTH, "big") + (key or b"") + (value or b"")


def each_joined(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[bytes | None]:
    return [joined(key, value) for key, value in zip(keys, values, strict=True)]


def parted(record: bytes) -> tuple[bytes, bytes]:
    """The key and the value of what `joined` made."""
    end = _LENGTH + int.from_bytes(record[:_LENGTH], "big")
    return record[_LENGTH:end], record[end:]
