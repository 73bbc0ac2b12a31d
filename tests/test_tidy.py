"""The house stays tidy: sizes, names, and no word that should not be there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import DECODING, ROOT, SOURCES, called, functions
from tools.measure import (
    assertions,
    no_op_defaults,
    single_importers,
    small,
    splatted_tuples,
    steering_reads,
    unplain_docstrings,
)
from tools.tree import BALANCERS, Tree

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
MODULES_MAX, LINES_MAX = 310, 66_000
SMALL_MAX = 20
"""Modules under 60 lines."""
SINGLE_IMPORTER_SHARE_MAX = 0.25
SAME_NAMES_MAX = 35
ASSERTIONS_MIN = 150
LONG_FUNCTIONS: dict[str, int] = {}
"""Exceptions, with the length they may have. The list only shrinks."""
BANNED_NAMES = re.compile(r"(Manager|Handler|Helper|Utils?|Base)$")
BANNED_NAMES_KEPT = {"RequestHandler"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")

NARROW = frozenset(
    {
        "ArithmeticError", "DecodeError", "Error", "JSONDecodeError", "KeyError", "LookupError",
        "MsgspecError", "OverflowError", "RecursionError", "TypeError", "UnicodeDecodeError", "UnicodeError",
        "ValidationError", "ValueError", "YAMLError", "ZeroDivisionError", "error",
    }
)  # fmt: skip
"""Exceptions that decoding raises; whoever expects one of them has to expect all of `DECODE_ERRORS`."""
NARROW_ON_PURPOSE = {
    "src/equipoise/core/documents.py:read_document": "what is no JSON is read as YAML; callers catch more",
    "src/equipoise/core/documents.py:read_json": "only gives a stack that is used up a better message",
    "src/equipoise/proportional/parse.py:_read": "a validator within a model; callers catch the rest",
}
"""Exceptions, with their reasons. The list only shrinks."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_is_small_and_well_named(path: Path) -> None:
    """Sizes, names and leftovers, file by file."""
    text = path.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= FILE_LINES_MAX
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        allowed = LONG_FUNCTIONS.get(f"{_name(path)}:{function.name}", FUNCTION_LINES_MAX)
        assert length <= allowed, f"{function.name} has {length} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name not in BANNED_NAMES_KEPT:
            assert not BANNED_NAMES.search(node.name), node.name
    if path != Path(__file__):
        assert not UNFINISHED.search(text)


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions that a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = (part.value if isinstance(part, ast.Starred) else part for part in parts)
    return {name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "") for name in names}


def narrow_decoding(source: str, where: str) -> Iterator[tuple[str, int]]:
    """Yield the function and line of each `except` around decoding that catches a part of `DECODE_ERRORS`."""
    for function in functions(ast.parse(source)):
        for node in ast.walk(function):
            if not isinstance(node, ast.Try):
                continue
            decoding = set.union(*(called(part) for part in node.body)) & DECODING
            caught = set.union(set(), *map(_caught, node.handlers))
            is_text = decoding == {"decode"} and caught & NARROW <= {"UnicodeDecodeError", "UnicodeError"}
            is_whole = bool(caught & {"DECODE_ERRORS", "Exception", "BaseException"})
            if decoding and caught & NARROW and not (is_whole or is_text):
                yield f"{where}:{function.name}", node.lineno


def test_whoever_catches_an_error_of_decoding_catches_all_of_them() -> None:
    """A narrower `except` lets one tenant's deep object, huge number or odd date end everybody's turn."""
    found = dict(
        each
        for path in SOURCES
        if path.is_relative_to(ROOT / "src")
        for each in narrow_decoding(path.read_text(), _name(path))
    )
    surprises = {place: line for place, line in found.items() if place not in NARROW_ON_PURPOSE}
    assert surprises == {}, "catch model.errors.DECODE_ERRORS there"
    assert [place for place in NARROW_ON_PURPOSE if place not in found] == []
    defining = re.compile(r"^DECODE_ERRORS\b", re.MULTILINE)
    own = [_name(path) for path in (ROOT / "src").rglob("*.py") if defining.search(path.read_text())]
    assert own == ["src/equipoise/core/errors.py"], "another tuple of this name may lack some"


@pytest.mark.parametrize(
    ("caught", "is_narrow"),
    [
        ("ValueError", True),
        ("(msgspec.MsgspecError, UnicodeError, RecursionError)", True),
        ("msgspec.DecodeError", True),
        ("DECODE_ERRORS", False),
        ("(ssl.SSLError, *DECODE_ERRORS)", False),
        ("Exception", False),
        ("OSError", False),
    ],
)
def test_a_narrow_except_around_decoding_would_be_found(caught: str, is_narrow: bool) -> None:
    """The rule itself: an `except` for other troubles alone is no matter of decoding."""
    source = (
        f"def read(x):\n    try:\n        return msgspec.json.decode(x)\n    except {caught}:\n        pass\n"
    )
    assert list(narrow_decoding(source, "x.py")) == ([("x.py:read", 2)] if is_narrow else [])


def test_the_errors_of_decoding_are_listed_once_and_no_shape_is_guessed() -> None:
    """A second list of the same name would be narrower; a mapping of anything is taken apart in hope."""
    sources = {_name(path): path.read_text() for path in SOURCES if path.is_relative_to(ROOT / "src")}
    listed = re.compile(r"^DECODE_ERRORS\b.*=", re.MULTILINE)
    assert [name for name, text in sources.items() if listed.search(text)] == ["src/equipoise/core/errors.py"]
    guessed = re.compile(r"\b(?:get_as|decode)\((?:dict|Document)\b")
    found = [name for name, text in sources.items() if guessed.search(text)]
    assert found == ["src/equipoise/adapters/kubernetes/objects.py"], "which passes objects on as they are"


def test_every_test_is_a_fact_with_a_docstring() -> None:
    """A test says what it proves."""
    silent = [
        f"{_name(path)}:{function.name}"
        for path in SOURCES
        if path.name.startswith("test_")
        for function in functions(ast.parse(path.read_text()))
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_no_exception_to_the_sizes_is_stale() -> None:
    """The list of exceptions only shrinks."""
    files = {name.rpartition(":")[0] for name in LONG_FUNCTIONS}
    lengths = {
        f"{_name(path)}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in SOURCES
        if _name(path) in files
        for function in functions(ast.parse(path.read_text()))
    }
    stale = [name for name, length in LONG_FUNCTIONS.items() if lengths.get(name, 0) != length]
    assert stale == []


GONE = re.compile(
    r"\b(came of it|is no pod|wants a look|only told|is left over|mend what|those it has go on"
    r"|decide it again|was said|fits [0-9.]+ of the window|(is|are|becomes?) whole( again)?)\b",
    re.IGNORECASE,
)
OWN_WORDS = re.compile(r"\bours\b|[0-9}] %(?![a-zA-Z])")
"""What Equipoise manages is not "ours", and there is no blank before the sign of a percentage."""
GONE_STILL: frozenset[str] = frozenset(
    {
        "src/equipoise/cli/forecast.py",
        "src/equipoise/cli/proportional_study.py",
        "src/equipoise/cli/recommendation_live.py",
        "src/equipoise/cli/recommendation_plot.py",
        "src/equipoise/cli/recommendation_replay.py",
        "src/equipoise/cli/rotation_study.py",
        "src/equipoise/recommendation/policy.py",
    }
)
"""Files whose sentences are still to be rewritten. The list only shrinks."""


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string that is no docstring; a value of an f-string is `{}`."""
    nodes = list(ast.walk(ast.parse(source)))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def gone_words(source: str) -> list[tuple[int, str]]:
    return [each for each in strings_of(source) if GONE.search(each[1]) or OWN_WORDS.search(each[1])]


def test_no_sentence_has_a_word_that_is_gone() -> None:
    """Sentences are in the English of Kubernetes' own documentation, and nobody has to guess a metaphor."""
    found = [
        f"{_name(path)}:{line}: {text}"
        for path in SOURCES
        if path.is_relative_to(ROOT / "src") and _name(path) not in GONE_STILL
        for line, text in gone_words(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_gone"),
    [
        ('x = "what came of it"', True),
        ('x = f"{y} is whole again"', True),
        ('x = f"by {y:.1f} %"', True),
        ('"""What came of it, by 10 %."""', False),
        ('x = f"by {y:.1f}% of the whole week"', False),
    ],
)
def test_a_word_that_is_gone_would_be_found(line: str, is_gone: bool) -> None:
    """The rule itself: in strings and around the values of an f-string, but not in docstrings."""
    assert bool(gone_words(line)) == is_gone


def test_every_dependency_has_its_reason() -> None:
    """A line in the decisions for each, so that nobody wonders in ten years."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=\[;]", line)[0] for line in project["dependencies"]]
    for file in ("bootstrap.in", "dev.in", "bench.in"):
        lines = (ROOT / "requirements" / file).read_text().split()
        names += [
            re.split(r"[<>=\[;]", line)[0]
            for line in lines
            if not line.startswith("-") and line != "bootstrap.in"
        ]
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_reason_is_explained_in_the_reference() -> None:
    """A closed list, documented."""
    from equipoise.core.reason import Code

    text = (ROOT / "docs" / "reference" / "reasons.md").read_text()
    assert [code.value for code in Code if f"`{code.value}`" not in text] == []


def test_urls_are_taken_apart_in_one_place() -> None:
    """What Python says of one that is malformed quotes a part of it, and that may be a part of a password."""
    apart = re.compile(r"\b(urlsplit|urlparse|parse_url)\b")
    found = {_name(path) for path in (ROOT / "src").rglob("*.py") if apart.search(path.read_text())}
    assert found == {"src/equipoise/adapters/urls.py"}


def test_yaml_is_read_and_written_in_one_place() -> None:
    """PyYAML's own loaders read `12:30` as a number of base 60, and a date as no text."""
    ways = re.compile(r"yaml\.(\w*load|\w*dump|parse|scan|compose|\w*Loader\b|\w*Dumper\b)|from yaml|ruamel")
    found = {_name(path) for path in (ROOT / "src").rglob("*.py") if ways.search(path.read_text())}
    assert found == {"src/equipoise/core/documents.py"}


def test_text_is_printed_in_one_way_which_knows_no_markup() -> None:
    """`[embedded]` in a message is no style; bars and tables go through the same console."""
    ways = re.compile(
        r"rich\.console import .*\bConsole\b|rich_console|from_markup|markup=True|rich\.markup"
        r"|rich import print|rich\.progress|rich\.live|rich\.pretty"
    )
    found = {_name(path) for path in (ROOT / "src").rglob("*.py") if ways.search(path.read_text())}
    assert found == {"src/equipoise/runtime/console.py", "src/equipoise/runtime/output.py"}
    bars = (ROOT / "src/equipoise/runtime/output.py").read_text()
    assert bars.count(" TextColumn(") == bars.count("markup=False") > 0


TREE = Tree(ROOT)
BALANCER_MODULES = {
    "": {"policy", "observe", "decide", "loop", "balancer"},
    "rotation": {"command", "execute", "plan_file", "preconditions", "progress", "status", "usage_file"},
    "proportional": {"applied", "execute", "functions", "parse", "replay", "smoothing", "status"},
    "qos": {
        "execute", "explain", "objects", "observation", "plan_file", "selection", "state", "status",
        "throttle", "waterlines",
    },
    "pools": {"change", "documents", "invariants", "rebalance", "registration"},
    "recommendation": {
        "adopt", "advisor", "analytics", "containers", "doubts", "explain", "files", "forecast", "publish",
        "sentences", "series", "settings", "snapshot", "usage",
    },
}  # fmt: skip
"""What a balancer's modules may be called: the first names are in all, the others say what one has more."""


def test_modules_are_few_and_large_enough_to_be_read_alone() -> None:
    """Ceilings alone would let the house fall apart into small files with one importer each."""
    assert len(TREE.modules) <= MODULES_MAX
    assert sum(map(TREE.lines, TREE.texts)) <= LINES_MAX
    assert len(small(TREE)) <= SMALL_MAX, small(TREE)
    single = single_importers(TREE)
    assert len(single) <= SINGLE_IMPORTER_SHARE_MAX * len(TREE.modules), single


def test_a_name_means_one_thing() -> None:
    """Classes of one name in two places have to be told apart by whoever searches for one of them."""
    twice = sorted(name for name, count in TREE.classes().items() if count > 1)
    assert len(twice) <= SAME_NAMES_MAX, twice


def test_docstrings_say_what_is_returned() -> None:
    """Kubernetes' and Python's own words: Return, List, Write; not Give, Say or Tell."""
    assert unplain_docstrings(TREE) == []


def test_no_callable_does_nothing_by_accident_and_no_argument_loses_its_name() -> None:
    """`str` as the default of a callable, and a literal tuple that is splatted, have to be guessed."""
    assert no_op_defaults(TREE) == []
    assert splatted_tuples(TREE) == []


def test_no_explanation_steers() -> None:
    """The numbers of a reason are for people and scripts; code reads the details that they are made from."""
    assert steering_reads(TREE) == []


def test_invariants_are_stated_where_they_must_hold() -> None:
    """Few assertions would mean that a broken invariant is found a hundred lines later."""
    assert assertions(TREE) >= ASSERTIONS_MIN


@pytest.mark.parametrize("balancer", BALANCERS)
def test_a_balancer_has_the_modules_that_the_others_have(balancer: str) -> None:
    """Whoever knows one balancer finds their way through the next; a new name is agreed on here."""
    names = set(TREE.of(balancer))
    assert names <= BALANCER_MODULES[""] | BALANCER_MODULES[balancer]
    assert names >= BALANCER_MODULES[""]


def test_every_test_shares_through_support_only() -> None:
    """A test that imports another test can't be moved or read alone; helpers are under tests/support."""
    own = re.compile(r"^from tests(\.\w+)*(\.test_\w+ import| import (\w+, )*test_\w+)", re.MULTILINE)
    tests = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
    assert [_name(path) for path in tests if own.search(path.read_text())] == []
    places = ("support", "testbed", "soak", "fixtures")
    helpers = [
        _name(path)
        for path in tests
        if not path.name.startswith(("test_", "__", "conftest"))
        and path.relative_to(ROOT / "tests").parts[0] not in places
    ]
    assert helpers == []
