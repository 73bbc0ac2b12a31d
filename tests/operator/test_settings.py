"""Settings: four layers, and a message that names the one that is wrong."""

from pathlib import Path

import pytest
import yaml

from equipoise.core.errors import BadInput
from equipoise.runtime.layers import Effective, effective, leaf_paths, print_settings, variables
from equipoise.runtime.output import Format
from equipoise.runtime.settings import Settings
from tests.support.cli.running import equipoise

NAME = ("lease", "name")


def _layers(
    folder: Path, text: str = "", environment: dict[str, str] | None = None, flag: str | None = None
) -> Effective:
    file = folder / "operator.yaml"
    file.write_text(text)
    flags: dict[tuple[str, tuple[str, ...]], str] = {} if flag is None else {("--lease-name", NAME): flag}
    return effective(str(file), environment or {}, flags)


@pytest.mark.parametrize(
    ("text", "environment", "flag", "name", "source"),
    [
        ("", {}, None, "equipoise", "default"),
        ("lease: {name: file}", {}, None, "file", "operator.yaml"),
        ("lease: {name: file}", {"EQUIPOISE_LEASE_NAME": "env"}, None, "env", "EQUIPOISE_LEASE_NAME"),
        ("", {"EQUIPOISE_LEASE__NAME": "env"}, None, "env", "EQUIPOISE_LEASE__NAME"),
        ("lease: {name: file}", {"EQUIPOISE_LEASE_NAME": ""}, None, "file", "operator.yaml"),
        ("lease: {name: f}", {"EQUIPOISE_LEASE_NAME": "e"}, "flag", "flag", "--lease-name"),
    ],
)
def test_a_later_layer_wins_and_is_named(
    tmp_path: Path, text: str, environment: dict[str, str], flag: str | None, name: str, source: str
) -> None:
    """Defaults, the file, the environment, flags; an empty variable is none."""
    found = _layers(tmp_path, text, environment, flag)
    assert found.settings.lease.name == name
    assert found.source(NAME).endswith(source)


def test_set_wins_over_every_flag() -> None:
    """Any setting can be given by its path."""
    found = effective(None, {}, {("--lease-name", NAME): "flag"}, ["lease.name=set", "journal.bytesMax=1Gi"])
    assert (found.settings.lease.name, found.settings.journal.bytes_max) == ("set", 1 << 30)
    assert found.source(NAME) == "--set"


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    """EQUIPOISE_CONFIG stands in for --config."""
    file = tmp_path / "operator.yaml"
    file.write_text("intervals: {rotation: 5m}\nlogs: {level: debug}\nlease:\n")
    settings = effective(None, {"EQUIPOISE_CONFIG": str(file)}, {}).settings
    assert (settings.interval_seconds("rotation"), settings.logs.level) == (300, "debug")


def test_lists_and_maps_can_come_from_a_variable() -> None:
    """Separated by commas; a layer replaces the whole list."""
    environment = {"EQUIPOISE_NAMESPACES": "shop, pay", "EQUIPOISE_PROMETHEUS_MATCHERS": "cluster=eu,a=b"}
    settings = effective(
        None, environment, {("--prometheus-header", ("prometheus", "headers")): ["A=x,y"]}
    ).settings
    assert settings.namespaces == ("shop", "pay")
    assert settings.prometheus.matchers == {"cluster": "eu", "a": "b"}
    assert settings.prometheus.headers == {"A": "x,y"}


BAD_FILES = [
    ("lease: {nmae: x}", "lease.nmae: unknown key"),
    ("nonsense: 1", "nonsense: unknown key"),
    ("lease: 5", "lease: expected a mapping, got 5"),
    ("- a", "expected a mapping of settings"),
    ("lease: {name: 5}", "lease.name: expected a valid string, got 5"),
    ("lease: {name: Blue_1}", "lease.name: "),
    ("lease: {durationSeconds: true}", "lease.durationSeconds: expected a number, got true"),
    (
        "lease: {renewSeconds: 20}",
        "lease: expected retrySeconds < renewSeconds < durationSeconds, got 2, 20 and 15",
    ),
    ("balancers: [rotation, magic]", "balancers[1]: expected 'rotation'"),
    ("http: {address: '8080'}", "http.address: expected HOST:PORT or :PORT"),
    ("http: {address: '::1:8080'}", "http.address: expected HOST:PORT or :PORT"),
    ("http: {address: ':99999'}", "http.address: expected HOST:PORT or :PORT"),
    ("intervals: {rotation: soon}", "intervals.rotation: expected seconds or a span such as 90s"),
    ("intervals: {rotation: 0}", "intervals.rotation: expected greater than or equal to 1, got 0"),
    ("journal: {bytesMax: 5}", "journal.bytesMax: expected greater than or equal to 1048576"),
    ("journal: {bytesMax: lots}", "journal.bytesMax: "),
    ("logs: {level: loud}", "logs.level: expected 'debug', 'info', 'warning' or 'error', got 'loud'"),
    ("disruption: {clusterMax: -1}", "disruption.clusterMax: expected greater than or equal to 0, got -1"),
    ("namespaces: [shop, 'Not A Name']", "namespaces[1]: "),
    ("lease: {name: a", "expected one YAML document"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=[text for text, _ in BAD_FILES])
def test_a_bad_file_is_refused_by_its_name_and_the_field(tmp_path: Path, text: str, message: str) -> None:
    """One message, with the path of the field and what was expected."""
    with pytest.raises(BadInput) as refused:
        _layers(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "operator.yaml"))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "sets", "message"),
    [
        (
            {"EQUIPOISE_LEASE_DURATION_SECONDS": "x"},
            [],
            "environment variable EQUIPOISE_LEASE_DURATION_SECONDS: ",
        ),
        (
            {"EQUIPOISE_LEASE_RENEW_SECONDS": "60"},
            [],
            "environment variable EQUIPOISE_LEASE_RENEW_SECONDS: lease: expected retrySeconds < renewSeconds",
        ),
        (
            {"EQUIPOISE_LEASE_NAME": "a", "EQUIPOISE_LEASE__NAME": "b"},
            [],
            "expected the value of EQUIPOISE_LEASE_NAME",
        ),
        ({}, ["lease.name=Not A Name"], "--set lease.name: "),
        ({}, ["lease.nmae=x"], "--set lease.nmae: unknown key"),
        ({}, ["lease=x"], "--set lease: expected a mapping"),
        ({}, ["lease.name"], "--set lease.name: expected KEY=VALUE"),
        ({"EQUIPOISE_CONFIG": "/no/such.yaml"}, [], "/no/such.yaml: No such file"),
    ],
)
def test_a_bad_value_is_refused_under_the_name_that_it_was_given_by(
    environment: dict[str, str], sets: list[str], message: str
) -> None:
    """The variable or the flag, not a field that the user never wrote."""
    with pytest.raises(BadInput) as refused:
        effective(None, environment, {}, sets)
    assert message in str(refused.value)


def test_every_variable_sets_one_setting() -> None:
    """No two paths share a name, however the words are joined."""
    paths = list(leaf_paths())
    assert set(variables().values()) == set(paths)
    single = {name for name in variables() if "__" not in name}
    assert len(single) == len(paths)


def test_links_of_services_named_like_us_are_no_settings() -> None:
    """Kubernetes puts them into every pod of the namespace."""
    links = {
        "EQUIPOISE_SERVICE_HOST": "10.0.0.1",
        "EQUIPOISE_PORT": "tcp://10.0.0.1:80",
        "EQUIPOISE_HTTP_PORT": "tcp://10.0.0.1:80",
        "EQUIPOISE_HTTP_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    found = effective(None, links, {})
    assert found.settings == Settings()
    assert found.warnings == ()


def test_a_misspelt_variable_is_pointed_out() -> None:
    """It is ignored, but not in silence."""
    found = effective(None, {"EQUIPOISE_LEASE_NMAE": "x", "EQUIPOISE_TESTBED": "y"}, {})
    assert found.warnings == (
        (
            "environment variable EQUIPOISE_LEASE_NMAE is unknown and was ignored; did you mean "
            "EQUIPOISE_LEASE_NAME?"
        ),
    )


@pytest.mark.parametrize("form", list(Format))
def test_no_secret_is_printed(
    form: Format, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a password in an address nor the value of a header, whoever asks."""
    monkeypatch.setenv("COLUMNS", "200")
    environment = {
        "EQUIPOISE_PROMETHEUS_URL": "http://me:s3cret@prom:9090",
        "EQUIPOISE_PROMETHEUS_HEADERS": "Key=s3cret",
        "EQUIPOISE_POOLS_REDIS_URL": "rediss://:s3cret@tiers:6380/2?password=s3cret",
    }
    print_settings(effective(None, environment, {}), form)
    printed = capsys.readouterr().out
    assert "s3cret" not in printed
    assert "prom:9090" in printed
    assert "tiers:6380/2" in printed


@pytest.mark.parametrize(
    "text",
    [
        "prometheus: {headers: {Key: [s3cret]}}",
        "prometheus: {headers: s3cret}",
        "prometheus: {url: [s3cret]}",
        "pools: {redisUrl: [s3cret]}",
    ],
)
def test_no_secret_is_in_a_refusal(tmp_path: Path, text: str) -> None:
    """A message says where, not what."""
    with pytest.raises(BadInput) as refused:
        _layers(tmp_path, text)
    assert "s3cret" not in str(refused.value)


def test_config_prints_a_file_that_can_be_used_again(tmp_path: Path) -> None:
    """YAML with the origin of each value in a comment; reading it back changes nothing."""
    first = equipoise(
        "config", "--set", "logs.level=debug", "-n", "shop", environment={"EQUIPOISE_STOP_SECONDS": "7"}
    )
    assert first.returncode == 0
    lines = dict(line.split(" # from ") for line in first.stdout.splitlines() if "#" in line)
    origins = {key.partition(":")[0]: origin for key, origin in lines.items()}
    assert origins["  level"] == "--set"
    assert origins["namespaces"] == "--namespace"
    assert origins["stopSeconds"] == "EQUIPOISE_STOP_SECONDS"
    assert origins["  clusterMax"] == "default"
    file = tmp_path / "again.yaml"
    file.write_text(first.stdout)
    second = equipoise("config", "--config", str(file))
    assert yaml.safe_load(second.stdout) == yaml.safe_load(first.stdout)


def test_the_namespaces_of_prometheus_are_set_in_every_layer(tmp_path: Path) -> None:
    """As a list in the file, with commas in a variable, one by one with the flag; the later replaces all."""
    path = ("prometheus", "namespaces")
    text = "prometheus: {namespaces: [a, b]}"
    environment = {"EQUIPOISE_PROMETHEUS_NAMESPACES": "c,d"}
    assert effective(None, {}, {}).settings.prometheus.namespaces == ()
    assert _layers(tmp_path, text).settings.prometheus.namespaces == ("a", "b")
    assert _layers(tmp_path, text, environment).settings.prometheus.namespaces == ("c", "d")
    flags = ["--prometheus-namespace", "e", "--prometheus-namespace", "f"]
    done = equipoise("config", "-o", "json", *flags, environment=environment)
    document = yaml.safe_load(done.stdout)
    assert document["settings"]["prometheus"]["namespaces"] == ["e", "f"]
    assert document["sources"][".".join(path)] == "--prometheus-namespace"
    refused = equipoise("config", "--prometheus-namespace", "Not_One")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --prometheus-namespace: ")


def test_config_as_json_has_settings_and_sources() -> None:
    """One document, made for scripts."""
    document = yaml.safe_load(equipoise("config", "-o", "json", "--log-level", "debug").stdout)
    assert document["settings"]["logs"]["level"] == "debug"
    assert document["sources"]["logs.level"] == "--log-level"
    assert document["sources"]["logs.format"] == "default"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--http-address", "nowhere"], 2, "error: --http-address: expected HOST:PORT"),
        (["--config", "/no/such.yaml"], 2, "error: /no/such.yaml: No such file"),
    ],
)
def test_a_fatal_start_is_one_error_line(arguments: list[str], status: int, message: str) -> None:
    """Bad settings, as for every other command."""
    done = equipoise("operator", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_cluster_is_one_error_line_and_exit_status_1(tmp_path: Path) -> None:
    """The world failed: nothing answers at the address."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, users: [{name: a, user: {}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://nowhere.invalid:1'}}]}"
    )
    done = equipoise("operator", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "nowhere.invalid" in done.stderr
    assert len(done.stderr.splitlines()) == 1
