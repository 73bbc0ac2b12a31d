"""YAML and JSON that somebody else wrote, and YAML that others can read.

There is one loader. It reads a plain scalar as Kubernetes does (sigs.k8s.io/yaml, which is go-yaml v2), and
not as YAML 1.1 has it: `12:30:00` is text and no number of base 60, a date is text, and every key is text.
One thing differs: `y` and `n` stay text, since a pod may be named so.

A document that does not fit its model is refused in one line: the path of the field and what was expected.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from equipoise.core.errors import DECODE_ERRORS, BadInput, did_you_mean
from equipoise.core.quantity import written_out

DEPTH_MAX = 100
"""A reader that goes down one call per level would end the process far below 100,000."""

VALUES_MAX = 2_000_000
"""How much one document may hold once its anchors are written out: a few lines can stand for billions."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""Whole numbers beyond these are read as floats, as in Kubernetes."""

SHOWN_MAX = 60
WIDTH = 100
_BREAKS = {"\x85", "\u2028", "\u2029"}

CSafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_WHOLE = (
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"([-+]?)0[oO]?([0-7]+)"), 8),
    (re.compile(r"([-+]?)([1-9][0-9]*|0)"), 10),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DIGITS_MAX = 70
"""No whole number of 64 bits is longer, in any base and with its sign."""


def number_of(text: str) -> float | None:
    """Return the number that Kubernetes reads in a plain scalar; None where it reads text."""
    if not text or text[0] not in "-+.0123456789":
        return None
    if text in _NAN:
        return math.nan
    if _INFINITE.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    plain = text if text[0] == "." else text.replace("_", "")
    for form, base in _WHOLE if len(plain) <= _DIGITS_MAX else ():
        found = form.fullmatch(plain)
        if found and INT_MIN <= (whole := int(found[1] + found[2], base)) <= INT_MAX:
            return whole
    number = float(plain) if _FLOAT.fullmatch(plain) else math.inf
    return number if math.isfinite(number) else None


class _IsNumber:
    """What PyYAML asks instead of a pattern: whether a plain scalar is a number."""

    @staticmethod
    def match(text: str) -> bool:
        return number_of(text) is not None


class Loader(CSafeLoader):  # type: ignore[misc]  # which of the two it is, the machine says
    """YAML as Kubernetes reads it. Of a key that comes twice, the last holds, as it does for kubectl."""

    is_strict = False

    def flatten_mapping(self, node: Any) -> None:
        """Write out what `<<` stands for; before it, look for a key that comes twice."""
        if not isinstance(node, yaml.MappingNode):
            raise _refused(node, f"expected a mapping, but found a {node.id}")
        if getattr(node, "is_flat", False):
            return  # another mapping has taken it in already
        node.is_flat = True  # type: ignore[attr-defined]
        seen: set[str] = set()
        for key_node, _ in node.value if self.is_strict else ():
            if key_node.tag != f"{_TAG}merge":
                key = self._key(key_node)
                if key in seen:
                    raise _refused(key_node, f"the key {key!r} occurs twice")
                seen.add(key)
        super().flatten_mapping(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - yaml's own
        """Return a mapping whose keys are text."""
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def _key(self, node: Any) -> str:
        match self.construct_object(node) if isinstance(node, yaml.ScalarNode) else None:
            case str(text):
                return text
            case bool(truth):
                return str(truth).lower()
            case int(number) | float(number):
                return repr(number).removesuffix(".0")
        raise _refused(node, "expected text as key")

    def construct_number(self, node: Any) -> float:
        """Return a number; one that is only tagged as such is refused."""
        number = number_of(self.construct_scalar(node))
        if number is None:
            raise _refused(node, f"expected a number, got {node.value[:SHOWN_MAX]!r}")
        return number

    def construct_word(self, node: Any) -> bool | None:
        word = self.construct_scalar(node)
        if word not in _TRUE | _FALSE | _NULL:
            raise _refused(node, f"expected true, false or null, got {word[:SHOWN_MAX]!r}")
        return None if word in _NULL else word in _TRUE


def _refused(node: Any, problem: str) -> Exception:
    error: Exception = yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
    return error


Loader.yaml_implicit_resolvers = {}
Loader.yaml_constructors = {None: CSafeLoader.construct_undefined}
for _kind, _construct in {
    "bool": Loader.construct_word,
    "null": Loader.construct_word,
    "int": Loader.construct_number,
    "float": Loader.construct_number,
    "str": CSafeLoader.construct_yaml_str,
    "timestamp": CSafeLoader.construct_yaml_str,
    "seq": CSafeLoader.construct_yaml_seq,
    "map": CSafeLoader.construct_yaml_map,
}.items():
    Loader.add_constructor(_TAG + _kind, _construct)
for _kind, _words in {"bool": _TRUE | _FALSE, "null": _NULL, "merge": {"<<"}}.items():
    _pattern = re.compile(f"(?:{'|'.join(map(re.escape, sorted(_words)))})$")
    Loader.add_implicit_resolver(_TAG + _kind, _pattern, sorted({word[:1] for word in _words}))
Loader.add_implicit_resolver(f"{_TAG}float", _IsNumber, list("-+.0123456789"))


class StrictLoader(Loader):
    """The same, where a key that comes twice is an error: the last would silently win."""

    is_strict = True


class Dumper(yaml.SafeDumper):
    """YAML in which every text is quoted that some reader would take for something else."""

    def represent_text(self, text: str) -> Any:
        """Return a scalar; a letter that ends a line for some readers only is written as an escape."""
        return self.represent_scalar(f"{_TAG}str", text, '"' if _BREAKS & set(text) else None)

    def represent_plain(self, number: float) -> Any:
        """Return a float without an exponent."""
        node = self.represent_float(number)
        if math.isfinite(number) and "e" in node.value:
            node.value = written_out(repr(number))
        return node


Dumper.add_representer(str, Dumper.represent_text)
Dumper.add_representer(float, Dumper.represent_plain)

for _kind, (_form, _letters) in {
    "bool": (r"[yYnN]$", "yYnN"),
    "float": (r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?$", "-+.0123456789"),
    "int": (r"[-+]?0[oO][0-7_]+$|[-+]?0[xX][0-9a-fA-F_]+$|[-+]?0[bB][01_]+$", "-+0"),
}.items():
    Dumper.add_implicit_resolver(_TAG + _kind, re.compile(_form), list(_letters))


def dump(document: Any, *, allow_unicode: bool = True, is_flow: bool = False, sort_keys: bool = False) -> str:
    """Return a document as YAML that this loader, kubectl and readers of YAML 1.1 read back as it was."""
    text: str = yaml.dump(
        document,
        Dumper=Dumper,
        sort_keys=sort_keys,
        allow_unicode=allow_unicode,
        width=1 << 20 if is_flow else WIDTH,
        default_flow_style=is_flow,
    )
    return text


class TooMuch(ValueError):  # noqa: N818 - reads as a fact
    """A document too deep or too large to be read; `document` is its number in the file."""

    def __init__(self, message: str, event: Any, document: int) -> None:
        where = f" in line {event.start_mark.line + 1}" if event.start_mark else ""
        super().__init__(f"{message}{where}")
        self.document = document


class _Open:
    """A collection that has not ended: what it holds so far with its anchors written out, and how deep."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1
        self.levels = 1

    def take(self, values: int, levels: int) -> None:
        self.values += values
        self.levels = max(self.levels, levels + 1)


def check_bounds(text: str | bytes) -> None:
    """Refuse what is too deep, too large or holds itself; TooMuch says where. Events come one by one."""
    document = 0
    above: list[_Open] = []
    anchored: dict[str, _Open] = {}
    for event in yaml.parse(text, Loader=CSafeLoader):
        match event:
            case yaml.DocumentStartEvent():
                document += 1
                above, anchored = [_Open(None)], {}
            case yaml.ScalarEvent():
                above[-1].values += 1
                if event.anchor:
                    anchored.pop(event.anchor, None)  # a name given twice means the last
            case yaml.CollectionStartEvent():
                if len(above) > DEPTH_MAX:
                    raise TooMuch(f"expected at most {DEPTH_MAX} levels, got more", event, document)
                above.append(_Open(event.anchor))
            case yaml.CollectionEndEvent():
                ended = above.pop()
                above[-1].take(ended.values, ended.levels)
                if ended.anchor:
                    anchored[ended.anchor] = ended
            case yaml.AliasEvent():
                _take_alias(event, document, above, anchored)


def _take_alias(event: Any, document: int, above: list[_Open], anchored: dict[str, _Open]) -> None:
    """Count what an alias stands for; one of a scalar, or of nothing, is one value."""
    if any(part.anchor == event.anchor for part in above):
        raise TooMuch(f"the alias *{event.anchor} contains itself", event, document)
    meant = anchored.get(event.anchor)
    above[-1].take(meant.values if meant else 1, meant.levels if meant else 0)
    if len(above) - 1 + (meant.levels if meant else 0) > DEPTH_MAX:
        raise TooMuch(f"expected at most {DEPTH_MAX} levels, got more", event, document)
    if sum(part.values for part in above) > VALUES_MAX:
        raise TooMuch(
            f"expected at most {VALUES_MAX} values once anchors are written out, got more", event, document
        )


def read_document(text: str) -> Any:
    """Read one document. JSON is read as JSON, which is quicker and knows all of its escapes."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return read_json(text)
        except json.JSONDecodeError:
            pass
    return load(text)


def load(text: str | bytes, loader: type[Loader] = StrictLoader) -> Any:
    """Read one YAML document; a YAMLError or a ValueError says what is wrong."""
    check_bounds(text)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


def read_json(text: str) -> Any:
    """Read one JSON document and nothing else; a ValueError says what is wrong."""
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_int=_json_whole, parse_float=_json_float)
    except RecursionError as error:
        raise ValueError(f"expected at most {DEPTH_MAX} levels, got more") from error
    refuse_deep(found)
    return found


def _json_whole(text: str) -> float:
    number = int(text) if len(text) <= _DIGITS_MAX else math.inf
    return number if INT_MIN <= number <= INT_MAX else _json_float(text)


def _json_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a number that fits a float, got one of {len(text)} characters")
    return number


def refuse_deep(value: object) -> None:
    """Raise ValueError where mappings and lists are nested deeper than `DEPTH_MAX`, without recursion.

    What passes can be encoded, copied and compared, which takes a part of the stack for each level.
    """
    layer = [value]
    for _ in range(DEPTH_MAX + 1):
        layer = [
            part
            for each in layer
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return
    raise ValueError(f"expected at most {DEPTH_MAX} levels, got more")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


Model = TypeVar("Model", bound=BaseModel)

_SENTENCES = {
    "extra_forbidden": "unknown key",
    "missing": "missing",
    **dict.fromkeys(("model_type", "dict_type"), "expected a mapping"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
}


def validated(model: type[Model], document: object, source: str) -> Model:
    """Read a document into a model, or refuse it naming the source and the first bad field."""
    try:
        return model.model_validate(document)
    except DECODE_ERRORS as error:
        raise BadInput(f"{source}: {explain(error, model)}") from error


def without_nulls(value: Any) -> Any:
    """Return a document without keys whose value is null: null counts as absent, as in Kubernetes."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over each other; a later layer wins, key by key, also inside mappings."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                result[key] = merged(below, value)
            else:
                result[key] = value
    return result


def explain(error: Exception, model: type[BaseModel] | None = None) -> str:
    """Return what is wrong with the first bad field, and how many more there are.

    With the model, an unknown key names the known one that is closest to it.
    """
    if not isinstance(error, ValidationError):
        return f"document: {str(error) or type(error).__name__}"
    first, *others = error.errors(include_url=False)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    message = _SENTENCES.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "expected").replace("Input should have", "expected")
    if first["type"] not in {"missing", "extra_forbidden"} and "got" not in message:
        message += f", got {_shown(first['input'])}"
    if first["type"] == "extra_forbidden" and model is not None:
        message += f".{question}" if (question := _closest(first["loc"], model)) else ""
    more = f" (and {len(others)} more)" if others else ""
    return f"{path.removeprefix('.') or 'document'}: {message}{more}"


def _closest(place: Sequence[int | str], model: Any) -> str:
    """Return the question whether another key of the same mapping was meant; empty if none is close."""
    for part in place[:-1]:
        fields = {field.alias or name: field for name, field in getattr(model, "model_fields", {}).items()}
        kind = fields[part].annotation if part in fields else model
        model = next((each for each in (kind, *get_args(kind)) if hasattr(each, "model_fields")), kind)
    fields = getattr(model, "model_fields", {})
    return did_you_mean(str(place[-1]), [field.alias or name for name, field in fields.items()])


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
