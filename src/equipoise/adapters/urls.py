"""URLs that may hold a password: parts of them for programs, and what of them people may read.

Python's own errors quote a part of the URL, and where a `/`, `?`, `#` or `@` was not written as `%2F` and so
on, that part is a part of the password. So URLs are taken apart here only, and no error quotes one.
"""

import re
from urllib.parse import SplitResult, urlsplit

HIDDEN = "(hidden)"
_PLAIN = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^@:/?#\[\]\s]*|\[[0-9A-Fa-f:.%]*\])(?::[0-9]{0,5})?(?:/(?!/)[^@?#\s]*)?"
)
"""An address without user, password, query and fragment, and without what may be a part of one."""
_ANY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://\S*")
_WITH_USER = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s'"]{0,2048}@""")


def split_url(text: str) -> SplitResult:
    """Return the parts of a URL, its port among them checked; a ValueError says nothing of the URL."""
    try:
        parts = urlsplit(text)
        is_sound = (parts.port or 0) >= 0 and "@" not in f"{parts.path}{parts.query}{parts.fragment}"
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError("in a password, / ? # @ : [ and ] are written as %2F and so on")
    return parts


def shown_url(text: str) -> str:
    """Return a URL as it may be printed: without user, password, query and fragment, whatever was typed."""
    user, _, rest = text.rpartition("@")
    scheme, separator, _ = user.partition("://")
    address = re.split(r"[?#]", f"{scheme}{separator}{rest}" if separator else rest, maxsplit=1)[0]
    return address if _PLAIN.fullmatch(address) else HIDDEN


def shown_in(text: str) -> str:
    """Return a message about what somebody typed, with every URL as it may be printed."""
    return _ANY.sub(lambda found: shown_url(found[0]), text)


def without_users(text: str) -> str:
    """Return a message in which no URL has a user or a password, whoever wrote it."""
    return _WITH_USER.sub(rf"\1{HIDDEN}@", text) if "://" in text else text
