"""A web page in the browser of whoever runs `pools serve` must not reach it; programs on the machine do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from equipoise.runtime.allocator.api import refusal
from equipoise.runtime.tokens import Tokens
from tests.support.pools.serving import Caller, service
from tests.support.pools.worlds import dump, write

TOKEN = "a-token-of-this-test"
BODY = b'{"call": "c1"}'


@pytest.fixture
def caller(url: str, client: Any) -> Iterator[Caller]:
    write(client, {"gold": ["a-0"]})
    with service(url) as (found, _):
        yield found


PAGES: dict[str, tuple[dict[str, str], int, str]] = {
    "another site's script": ({"Origin": "https://evil.example"}, 403, "Origin"),
    "a page without an origin of its own": ({"Origin": "null"}, 403, "Origin"),
    "another service of this machine": ({"Origin": "http://localhost:1"}, 403, "Origin"),
    "a name that was made to point here": ({"Host": "evil.example:8081"}, 403, "Host"),
    "the same, from its own page": ({"Host": "evil.example", "Origin": "http://evil.example"}, 403, "Host"),
    "a name that only begins like ours": ({"Host": "localhost.evil.example"}, 403, "Host"),
    "an address that only begins like ours": ({"Host": "127.0.0.1.evil.example"}, 403, "Host"),
    "a browser that says so": ({"Sec-Fetch-Site": "cross-site"}, 403, "Sec-Fetch-Site"),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "Content-Type"),
    "a form that looks like JSON": ({"Content-Type": "text/plain; application/json"}, 415, "Content-Type"),
    "nothing said": ({"Content-Type": ""}, 415, "Content-Type"),
}


@pytest.mark.parametrize(("headers", "status", "field"), PAGES.values(), ids=PAGES)
def test_without_a_token_a_web_page_is_refused(
    caller: Caller, client: Any, headers: dict[str, str], status: int, field: str
) -> None:
    """By the header that gives it away; nothing happens, and nothing is shown."""
    before = dump(client)
    found, text, _ = caller.raw("POST", "/v1/allocate", BODY, headers)
    assert (found, json.loads(text)["outcome"]) == (status, "no")
    assert json.loads(text)["sentence"].startswith(f"{field}: ")
    assert dump(client) == before
    if field != "Content-Type":
        assert caller.raw("GET", "/v1/status", headers=headers)[0] == status


def test_programs_and_pages_of_this_very_service_are_served(caller: Caller) -> None:
    """Whichever name of this machine they use."""
    own = f"localhost:{caller.port}"
    for headers in (
        {},
        {"Host": own, "Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"},
        {"Host": "[::1]:8081"},
        {"Host": "LOCALHOST."},
        {"Content-Type": "application/json; charset=utf-8"},
    ):
        assert caller.raw("POST", "/v1/allocate", BODY, headers)[0] == 200, headers
        assert caller.raw("GET", "/v1/status", headers=headers)[0] == 200, headers


def test_with_a_token_any_name_and_form_will_do(url: str, client: Any, tmp_path: Path) -> None:
    """No browser sends it by itself, and a service in a cluster has many names."""
    write(client, {"gold": ["a-0"]})
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    with service(url, Tokens(str(file))) as (caller, _):
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Host": "pools.voice.svc",
            "Content-Type": "text/plain",
        }
        assert caller.raw("POST", "/v1/allocate", BODY, headers)[0] == 200


@pytest.mark.parametrize("host", ["", ":8081", "a@localhost", "[::1", "localhost:x", "10.0.0.1", "::1"])
def test_a_host_that_is_not_this_machine_is_no_host(host: str) -> None:
    """Nor one that makes no sense."""
    refused = refusal("GET", {"host": host})
    assert refused is not None
    assert refused.status == 403
