"""What holds a secret, by its name or its form: for what refuses one, and for Spark, which hides it."""

import re
from urllib.parse import unquote

REFERENCE = re.compile(r"\$\{([^:}]*)(?::([^}]*))?\}")

SECRET_NAME = (
    r"secret|passw(or)?d|passphrase|token|credential|authorization"
    r"|(access|api|private|account|encryption|master|shared)[._-]?key|(^|[._-])(sas|pwd)([._-]|$)"
)
"""A pattern, in any case, of Python's and Java's: the names that Spark hides by default, and others like them."""

SIGNATURE = r"(?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))"
"""As SECRET_NAME: the parameters of a signed URL, and of a SAS token, that whoever has them needs nothing else."""

_NAME = re.compile(SECRET_NAME, re.IGNORECASE)
# Settings about a secret that contain none: `…credentials.provider`, `password_file`, `token.ttl`.
_ABOUT = re.compile(
    r"(file|path|location|dir|provider|class|type|name|url|uri|enabled|ttl|renewal|interval|lifetime|timeout"
    r"|expiration|validity|format|algorithm)s?$",
    re.IGNORECASE,
)
_SWITCH = re.compile(r"\s*(true|false)?\s*", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
# In all of these a NUL stands for a reference: a user, a password or a value that is nothing else is no secret.
_USER_INFO = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s:]*:\0*[^/@\s\0][^/@\s]*@", re.IGNORECASE)
# On the web a user without a password is a token.
_WEB_USER = re.compile(r"https?://\0*[^/@\s?#:\0][^/@\s?#:]*:?@", re.IGNORECASE)
# A text that is a URL as a whole: in its password any character may stand, also one that ought to be escaped.
_WHOLE_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*://[^/@:[]*:(?!\d+(?:[/,?]|$))\0*[^@\0][^@]*@", re.IGNORECASE)
# name=value and "name": value inside a text: a Connect address, JAAS, Java options, JSON.
_PAIR = re.compile(r"""([\w.-]+)(?:["']?\s*=|["']\s*:)\s*["']?([^\s;&,"'}]*)""")
# In a query only: a folder can be called `sig=1`.
_SIGNED = re.compile(rf"[?&]{SIGNATURE}=\0*[^&#\s\0]|^{SIGNATURE}=\0*[^&#\s/\0][^&#\s/]*&", re.IGNORECASE)


def holds_secret(text: str) -> bool:
    """Whether a text holds a secret by its form: a URL with a password, `password=…`. References are none."""
    bare = REFERENCE.sub("\0", text)
    return holds_key(text) or any(map(_says_secret, (bare, unquote(bare))))


def holds_key(text: str) -> bool:
    """Whether it is a private key."""
    return _PRIVATE_KEY.search(text) is not None


def names_secret(name: str) -> bool:
    """Whether what has this name is a secret."""
    return _NAME.search(name) is not None and _ABOUT.search(name) is None


def is_switch(text: str) -> bool:
    """Whether a value is none at all: true or false."""
    return _SWITCH.fullmatch(text) is not None


def _says_secret(text: str) -> bool:
    if _WHOLE_URL.match(text) or any(form.search(text) for form in (_USER_INFO, _WEB_USER, _SIGNED)):
        return True
    pairs = ((found[1], found[2].strip("\0")) for found in _PAIR.finditer(text))
    return any(names_secret(name) and not is_switch(value) for name, value in pairs)
