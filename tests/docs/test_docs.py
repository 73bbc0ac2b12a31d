"""Links lead somewhere, commands and names exist, manifests are right: in every page of the repository."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.cli.manifests import KINDS
from equipoise.core.documents import StrictLoader
from equipoise.core.reason import Code
from equipoise.crd.manifest import problems
from equipoise.runtime.layers import FILE_VARIABLE, variables
from tests.support.docs.mistakes import mistake
from tests.support.docs.pages import (
    ROOT,
    Shown,
    anchors,
    blocks,
    commands,
    inline,
    links,
    name_of,
    pages,
    tables,
)
from tools.metric_table import metric_table

PAGES = pages()
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GUIDES = [page for page in PAGES if page.parent == ROOT / "docs" / "how-to" or page.parent == ROOT / "docs"]
"""Pages for users: what they name in backticks is looked up."""
FAMILIES = ("_bucket", "_count", "_sum")
OF_OTHERS = {"HTTPS_PROXY", "NO_PROXY"}
"""Variables that a page names to say that they are ignored."""
PLACEHOLDER = re.compile(r"^[A-Z][A-Z0-9_.:/=-]*$")
VARIABLE = re.compile(r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$")
DOTTED = re.compile(r"^([a-zA-Z]+(?:\.[a-zA-Z]+)+)(?:=.*)?$")
CODES = {code.value for code in Code}


def _ids(page: Path) -> str:
    return name_of(page)


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file or folder of the repository, and to a heading that is there."""
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


SHOWN = [shown for page in PAGES for shown in commands(page)]


@pytest.mark.parametrize("page", sorted({shown.page for shown in SHOWN}))
def test_every_command_line_is_understood(page: str) -> None:
    """Commands, options, choices and how many words: against the real command line."""
    shown: list[Shown] = [one for one in SHOWN if one.page == page]
    assert {one.line: mistake(one.words) for one in shown if mistake(one.words)} == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rotation plan -A --debug -o json", ""),
        ("rotation plna", "no command 'plna'"),
        ("rotation plan --form x", "no option --form"),
        ("rotation plan -o xml", "-o xml: expected one of"),
        ("agent --node", "--node without a value"),
        ("schema one two", "2 words, and 1 are expected"),
    ],
)
def test_a_wrong_command_line_is_found(line: str, expected: str) -> None:
    """The test above can fail."""
    found = mistake(tuple(line.split()))
    assert found[: len(expected)] == expected
    assert bool(found) is bool(expected)


def _wrong(text: str) -> list[str]:
    of_ours = {(kind.api_version, kind.name): kind for kind in KINDS}
    versions = {kind.api_version for kind in KINDS}
    found = []
    for document in yaml.load_all(text, Loader=StrictLoader):
        if not isinstance(document, dict) or document.get("apiVersion") not in versions:
            continue
        kind = of_ours.get((document["apiVersion"], str(document.get("kind"))))
        found += (
            [str(one) for one in problems(kind, document)] if kind else [f"no kind {document.get('kind')}"]
        )
    return found


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_every_manifest_in_a_page_is_valid(page: Path) -> None:
    """As `equipoise validate` judges it."""
    shown = [block.text for block in blocks(page) if block.language in {"yaml", "yml"}]
    assert [wrong for text in shown for wrong in _wrong(text)] == []


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.suffix == ".yaml"], ids=lambda one: one.name
)
def test_every_example_is_valid_and_named_somewhere(example: Path) -> None:
    """An example that no page names is one that nobody finds."""
    assert _wrong(example.read_text()) == []
    assert any(example.name in page.read_text() for page in PAGES)


@pytest.mark.parametrize("page", GUIDES, ids=_ids)
def test_every_reason_metric_and_variable_exists(page: Path) -> None:
    """What a guide names can be found in the product."""
    shown = {one.name for one in metric_table()}
    known = {*variables(), FILE_VARIABLE}
    missing = []
    for row in tables(page, "reason"):
        missing += [word for word in re.findall(r"`([A-Z][A-Za-z]+)`", row[0]) if word not in CODES]
    for word in inline(page):
        bare = re.split(r"[{\[]", word)[0]
        if re.match(r"^(equipoise|rebalancer)_[a-z_]+$", bare):
            stem = next((bare.removesuffix(end) for end in FAMILIES if bare.endswith(end)), bare)
            missing += [] if {bare, stem} & shown else [word]
        elif VARIABLE.match(word):
            missing += [] if word in known | OF_OTHERS or word in _sources() else [word]
    assert missing == []


@cache
def _sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


@cache
def _values() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "charts/equipoise/values.yaml").read_text())
    return document


def _is_value(path: tuple[str, ...]) -> bool:
    if path[0] == "config":
        return path[1:] in set(variables().values()) or len(path) == 1
    here: Any = _values()
    for key in path:
        if not isinstance(here, dict) or (here and key not in here):
            return False
        here = here.get(key, {})
    return True


@pytest.mark.parametrize("page", GUIDES, ids=_ids)
def test_every_value_of_the_chart_exists(page: Path) -> None:
    """In backticks, and after `--set` of Helm; a setting of the operator will do where no value is meant."""
    settings = set(variables().values())
    named = [found[1] for word in inline(page) if (found := DOTTED.match(word))]
    sets = re.findall(r"--set(?:-string)? ([\w.]+)=", "\n".join(block.text for block in blocks(page)))
    values = [tuple(word.split(".")) for word in named if word.split(".")[0] in {*_values(), "config"}]
    helm = [tuple(word.split(".")) for word in sets if word.split(".")[0] in {*_values(), "config"}]
    wrong = [path for path in values if not _is_value(path) and path not in settings]
    assert [".".join(path) for path in (*wrong, *[path for path in helm if not _is_value(path)])] == []
