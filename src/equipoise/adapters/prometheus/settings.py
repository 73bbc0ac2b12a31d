"""How to reach a Prometheus and how much to ask of it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote

from equipoise.adapters.urls import HIDDEN, shown_url, split_url
from equipoise.core.errors import BadInput

_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_MEANT = re.compile(r"[\s\"'`\\{}]")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one request and all requests together may cost."""

    timeout_seconds: float = 60.0
    """For one query, its retries included; the server is told too."""
    concurrency_max: int = 4
    series_max: int = 20_000
    """Series in one answer."""
    points_max: int = 11_000
    """Points of one series in one answer; Prometheus refuses more."""
    memory_max_bytes: int = 256 * 1024 * 1024
    """Answers held at the same time; each may have an equal share of it."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < float("inf"):
                raise BadInput(f"prometheus {name}: expected a number above 0, got {value}")

    @property
    def answer_max_bytes(self) -> int:
        """The share of the memory that one answer may have."""
        return max(1, self.memory_max_bytes // self.concurrency_max)


@dataclass(frozen=True, slots=True)
class LabelNames:
    """How the metric and its labels are called here; the defaults are cAdvisor's and the kubelet's."""

    metric: str = "container_cpu_usage_seconds_total"
    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"

    def __post_init__(self) -> None:
        if not _METRIC.fullmatch(self.metric):
            raise BadInput(f"prometheus metric: expected a metric name, got {self.metric!r}")
        for label in self.labels:
            check_label(label)
        if len(set(self.labels)) != len(self.labels):
            raise BadInput(f"prometheus labels: expected three different names, got {self.labels}")

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels that tell one container from another."""
        return (self.namespace, self.pod, self.container)


def check_label(name: str) -> None:
    """Refuse what can hardly be meant as a label name; since version 3, nearly all of Unicode is one."""
    if not name or not name.isprintable() or _NOT_MEANT.search(name):
        raise BadInput(f"prometheus label: expected a label name, got {name!r}")


def is_plain_label(name: str) -> bool:
    """Return whether PromQL of every version reads this label name without quotes."""
    return _PLAIN_LABEL.fullmatch(name) is not None


CADVISOR = LabelNames()
"""The names as they are nearly everywhere."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """One Prometheus by its address. Secrets are kept out of `repr`."""

    url: str = field(repr=False)
    """May carry a path prefix, such as Mimir's `/prometheus`, and a user and password."""
    bearer_token: str | None = field(default=None, repr=False)
    bearer_token_file: str | None = None
    """Read anew for every request, since such tokens are rotated."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request, such as `X-Scope-OrgID`."""

    def __post_init__(self) -> None:
        split = self.parts
        ways = (self.bearer_token, self.bearer_token_file, self.username or split.username)
        if sum(way is not None for way in ways) > 1:
            raise BadInput("prometheus: expected only one of a bearer token, a token file and a user")
        if self.password is not None and self.username is None:
            raise BadInput("prometheus: expected a user beside the password, got none")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name):
                raise BadInput(f"prometheus header: expected a header name, got {name!r}")
            _check_header(f"prometheus header {name}", value)
        self.request_headers(read_token=False)

    @property
    def parts(self) -> SplitResult:
        """The parts of the URL, user and password among them."""
        try:
            split = split_url(self.url)
            is_good = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
        except ValueError:
            is_good = False
        if not is_good or split.query or split.fragment or any(c <= " " for c in self.url):
            got = shown_url(self.url)
            hint = "; in a password, write / ? # @ : [ and ] as %2F and so on" if got == HIDDEN else ""
            raise BadInput(f"prometheus url: expected http://HOST:PORT/PREFIX, got {got!r}{hint}")
        return split

    @property
    def address(self) -> str:
        """The address as it may be printed: without user and password."""
        split = self.parts
        return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{self.path_prefix}"

    @property
    def path_prefix(self) -> str:
        """What stands before `/api/v1` on this server."""
        return self.parts.path.rstrip("/")

    def request_headers(self, *, read_token: bool = True) -> dict[str, str]:
        """Make the headers of one request; a token file is read now."""
        # identity: compressing costs the server more time than it saves inside a cluster.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "equipoise"}
        headers |= self.headers
        token = self._token() if read_token else self.bearer_token
        parts = self.parts
        user, password = self.username, self.password or ""
        if user is None and parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        if token is not None:
            _check_header("prometheus bearer token", token)
            headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            # As it stands in the environment, whatever bytes those are.
            pair = f"{user}:{password}".encode("utf-8", "surrogateescape")
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers

    def _token(self) -> str | None:
        if self.bearer_token_file is None:
            return self.bearer_token
        try:
            token = Path(self.bearer_token_file).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise BadInput(f"prometheus bearer token file {self.bearer_token_file}: {reason}") from error
        if not token:
            raise BadInput(f"prometheus bearer token file {self.bearer_token_file}: it is empty")
        return token


def _check_header(what: str, value: str) -> None:
    if not value.isascii() or not value.isprintable() or not value:
        raise BadInput(f"{what}: expected printable ASCII")
