"""No password and no token is printed: not in a refusal, not in a traceback of --debug, not in a log."""

import io
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.redis.connect import address_of
from equipoise.cli.main import main
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.runtime.layers import effective
from equipoise.runtime.logs import log_failure, make_log
from equipoise.runtime.settings import Logs

SECRET = "s3cret"
HOST = "127.0.0.1"
MALFORMED = (
    "redis://:s3cret/x@HOST",
    "redis://:s3cret#x@HOST:6379",
    "redis://me:12#s3cret@HOST",
    "redis://s3cret?x@HOST",
    "redis://[s3cret@HOST",
    "redis://me:s3cret",
    "redis://me:s3cret@HOST:port",
    "redis://me:s3cret@HOST\u2100",
    "redis://:s3cret@HOST:6379?socket_timeout=s3cret",
    "redis://:s3cret@HOST?db=s3cret",
    "redis://:s3cret@HOST/db",
    "http://:s3cret@HOST",
    "redis://:s3cret@HOST:1",
    "unix://:s3cret@/no/redis.sock",
    "redis://HOST:1?username=me&password=s3cret&colour=s3cret",
)
URLS = [url.replace("HOST", HOST) for url in MALFORMED]
KUBECONFIGS = (
    '{"server": "https://me:s3cret@HOST:port"}',
    '{"server": "https://me:s3cret@HOST:1"}',
    '{"server": "https://me:s3cret"}',
    '{"server": "https://HOST:1", "proxy-url": "http://me:s3cret@HOST:port"}',
    '{"server": "https://HOST:1", "proxy-url": "http://me:s3cret/x@HOST:1"}',
    '{"server": "https://HOST:1", "proxy-url": "http://me:s3cret\u20ac@HOST:1"}',
)
SETTINGS = (
    '{"prometheus": "http://me:s3cret@HOST"}',
    '{"prometheus": {"url": ["http://me:s3cret@HOST"]}}',
    '{"prometheus": {"headers": ["s3cret"]}}',
    '{"prometheus": {"headers": {"Authorization": ["s3cret"]}}}',
    '{"pools": "redis://:s3cret@HOST"}',
    '{"pools": {"redisUrl": {"s3cret": 1}}}',
    '{"pools": {"redisUrl": 1, "prefix": "redis://:s3cret@HOST"}}',
)


def _said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return all that a command prints with --debug."""
    monkeypatch.setattr(sys, "argv", ["equipoise", *words, "--debug"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    return said.out + said.err


@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_the_password_of_a_redis(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """However the URL is malformed, and whichever way it comes; one line says what was expected."""
    monkeypatch.setattr("equipoise.runtime.runner.end_on_signals", lambda: None)
    for words in (["pools", "status", "--redis", url], ["pools", "status", url], ["doctor", "--redis", url]):
        said = _said(capsys, monkeypatch, *words, *(["--kubeconfig", "/no"] if words[0] == "doctor" else []))
        assert SECRET not in said, said
        assert said.splitlines()[-1].startswith("error: ")
    monkeypatch.setenv("EQUIPOISE_POOLS_REDIS_URL", url)
    for form in ("yaml", "json", "table"):
        said = _said(capsys, monkeypatch, "config", "-o", form)
        assert SECRET not in said, said
        assert "hidden" in said or "@" not in url


@pytest.mark.parametrize("cluster", KUBECONFIGS)
def test_no_command_prints_the_password_of_an_address_in_a_kubeconfig(
    cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither the server's nor the proxy's, refused or not reachable."""
    file = tmp_path / "config"
    clusters = f'[{{"name": "c", "cluster": {cluster.replace("HOST", HOST)}}}]'
    context = '[{"name": "c", "context": {"cluster": "c", "user": "u"}}]'
    users = '[{"name": "u", "user": {"token": "s3cret"}}]'
    file.write_text(
        f'{{"clusters": {clusters}, "contexts": {context}, "users": {users}, "current-context": "c"}}'
    )
    monkeypatch.setattr("equipoise.adapters.http.Backoff.next_seconds", lambda *_: None)
    said = _said(capsys, monkeypatch, "rotation", "plan", "--kubeconfig", str(file))
    assert SECRET not in said, said
    assert "unexpected" not in said


@pytest.mark.parametrize("document", SETTINGS)
def test_no_settings_print_a_password_where_they_are_refused(
    document: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also one level above or below where it belongs; on the command line too."""
    file = tmp_path / "settings.json"
    file.write_text(document.replace("HOST", HOST))
    assert SECRET not in _said(capsys, monkeypatch, "config", "--config", str(file))
    (name, value), *_ = json.loads(document).items()
    if isinstance(value, str):
        assert SECRET not in _said(capsys, monkeypatch, "config", "--set", f"{name}={value}")
        assert SECRET not in _said(capsys, monkeypatch, "config", "--set", f"{name}:{value}")


def test_no_log_has_a_url_with_its_password() -> None:
    """Whatever a library says, and whatever a traceback quotes."""
    stream = io.StringIO()
    log = make_log(Logs(level="debug", format="json"), stream)
    log.info("redis://:s3cret@tiers and http://me:s3cret@proxy/x", url="http://me:s3cret@h")
    failure = WorldFailed("h: not reachable")
    failure.__cause__ = ValueError("bad redis://me:s3cret@h")
    log_failure(log, "the cycle failed", failure)
    assert SECRET not in stream.getvalue()
    assert stream.getvalue().count("(hidden)@") == 4


ODD = st.text(alphabet="/?#@:[]%2ab1\u2100", max_size=6)
CONSUMERS: dict[str, Callable[[str], object]] = {
    "redis": lambda rest: address_of(f"redis://{rest}"),
    "unix": lambda rest: address_of(f"unix://{rest}"),
    "prometheus": lambda rest: PrometheusSettings(f"http://{rest}").address,
    "settings": lambda rest: effective(
        None, {}, {}, [f"prometheus.url=http://{rest}", f"pools.redisUrl=redis://{rest}"]
    ).settings.document(),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@given(before=ODD, after=ODD, port=st.sampled_from(["", ":6379", ":port", ":99999"]))
@example(before="12#", after="", port="")
@example(before="12/", after="", port="")
@example(before="[", after="]", port="")
def test_no_part_of_a_password_is_shown_wherever_it_ends_the_url_too_soon(
    consumer: str, before: str, after: str, port: str
) -> None:
    """What is shown of a URL that is taken, and the whole traceback of one that is not."""
    try:
        said = str(CONSUMERS[consumer](f"me:{before}{SECRET}{after}@host{port}"))
    except EquipoiseError as error:
        said = "".join(traceback.format_exception(error))
    assert SECRET not in said


def test_a_proxy_takes_a_password_in_any_letters(tmp_path: Path) -> None:
    """It is sent as UTF-8, as for any other user."""
    from equipoise.adapters.kubernetes.connection import Wire

    file = tmp_path / "config"
    cluster = {"server": "https://127.0.0.1:1", "proxy-url": "http://me:%E2%82%AC@127.0.0.1:1"}
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    wire = Wire(find_target(str(file)).endpoint, 1)
    pool = wire._pool_for(None)
    assert pool.proxy_headers == {"proxy-authorization": "Basic bWU64oKs"}
    wire.close()
