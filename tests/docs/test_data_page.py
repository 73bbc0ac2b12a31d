"""The page on data that people have shows commands that work, on a server that answers like Prometheus."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.data_page import ADDRESS, run_block, shell_blocks
from tests.support.prometheus.server import Request, Response, ok, serving
from tests.support.recommendation.people_files import POD_METRICS, TOP, usage

BLOCKS = shell_blocks()
OF_SERVER = [text for text in BLOCKS if ADDRESS in text]
OF_FILES = [text for text in BLOCKS if ADDRESS not in text]
KUBECTL = f"""#!/bin/sh
case "$*" in
*--raw*) cat <<'END'
{json.dumps({"kind": "PodMetricsList", "items": POD_METRICS})}
END
;;
*) cat <<'END'
{TOP}END
;;
esac
"""


def _series(times: range, query: str) -> list[dict[str, Any]]:
    """Return pods where they are asked for, else their sum."""
    values = [[[at, str(usage(at // 3600, pod))] for at in times] for pod in (0, 1)]
    if "by (namespace, pod)" in query:
        return [
            {"metric": {"namespace": "shop", "pod": f"web-{pod}"}, "values": values[pod]} for pod in (0, 1)
        ]
    return [{"metric": {}, "values": values[0]}]


def _answer(request: Request) -> Response:
    query = request.fields["query"]
    assert "rate(container_cpu_usage_seconds_total{" in query
    if request.path == "/api/v1/query":
        times = range(1_790_000_100, 1_790_604_900, 300)
    else:
        assert request.path == "/api/v1/query_range"
        start, end = int(request.fields["start"]), int(request.fields["end"])
        assert end - start == 7 * 86400
        times = range(start, end + 1, int(request.fields["step"]))
    assert len(times) <= 11_000, "more are refused by a server"
    return ok({"resultType": "matrix", "result": _series(times, query)})


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("text", OF_SERVER, ids=[f"block {number}" for number in range(len(OF_SERVER))])
def test_a_query_of_the_page_gives_advice(text: str, tmp_path: Path) -> None:
    """The curl asks what a server answers, and the command reads that."""
    with serving(_answer) as server:
        done = run_block(text, tmp_path, server.url)
    assert (done.returncode, "Recommend" in done.stdout) == (0, True), done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())


@pytest.mark.parametrize("text", OF_FILES, ids=[f"block {number}" for number in range(len(OF_FILES))])
def test_a_file_of_the_page_is_read(text: str, tmp_path: Path) -> None:
    """What the page writes into files is what its commands take."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    done = run_block(text, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Recommend" in done.stdout or "Rotate" in done.stdout


def test_the_page_shows_each_form() -> None:
    """Every kind of source has commands that are run here."""
    assert (len(OF_SERVER), len(OF_FILES)) == (4, 4)
