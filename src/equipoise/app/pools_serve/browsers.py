"""Keeps web pages out where no token does: a browser on this machine would carry their requests here.

A page of another site can post to a loopback address, and under a name that it makes point here (DNS
rebinding) it could read the answer too. So without tokens a request must name this machine as its host, must
not come from a page of another origin, and must send what no plain form can: JSON.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from starlette.status import HTTP_403_FORBIDDEN, HTTP_415_UNSUPPORTED_MEDIA_TYPE

from equipoise.app.pools_serve.tokens import is_loopback

JSON = "application/json"
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]{1,5})?")
OWN_SITES = {"", "none", "same-origin"}
"""What a browser says of a request that no other site's page made."""
SHOWN_MAX = 80


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    result: str
    sentence: str


def refusal(method: str, headers: Mapping[str, str]) -> Refusal | None:
    """Say why a request may be a web page's, or nothing."""
    host = headers.get("host", "").lower()
    named = HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]").removesuffix(".")):
        return _forbidden(f"Host: expected this machine, such as localhost, got {host[:SHOWN_MAX]!r}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
        return _forbidden(f"Origin: another page may not ask, got {origin[:SHOWN_MAX]!r}")
    if headers.get("sec-fetch-site", "") not in OWN_SITES:
        return _forbidden("Sec-Fetch-Site: another site's page may not ask")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media != JSON:
        said = f"Content-Type: expected {JSON}, got {media[:SHOWN_MAX] or 'none'}"
        return Refusal(HTTP_415_UNSUPPORTED_MEDIA_TYPE, "NotJson", said)
    return None


def _forbidden(sentence: str) -> Refusal:
    return Refusal(HTTP_403_FORBIDDEN, "Forbidden", sentence)
