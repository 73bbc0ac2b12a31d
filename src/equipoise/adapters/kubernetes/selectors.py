"""Label selectors: from an object's fields, and from and to the text form of `scale` and queries."""

from __future__ import annotations

import re

from equipoise.adapters.kubernetes.structs import RawLabelSelector
from equipoise.core.cluster import Requirement, Selector

_TOKEN = re.compile(r"\s*(?:(?P<sign>==|!=|[=!,()<>])|(?P<word>[^\s=!,()<>]+))\s*")
_FORMATS = {
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
}


def selector_of(fields: RawLabelSelector) -> Selector:
    """Return the terms of `matchLabels` and `matchExpressions`; raise ValueError for an unknown operator."""
    terms = [Requirement(key, "In", (value,)) for key, value in sorted((fields.matchLabels or {}).items())]
    for expression in fields.matchExpressions or ():
        if expression.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            raise ValueError(f"expected In, NotIn, Exists or DoesNotExist, got {expression.operator!r}")
        terms.append(Requirement(expression.key, expression.operator, tuple(expression.values or ())))
    return Selector(tuple(terms))


def format_selector(selector: Selector) -> str:
    """Return a selector as query text."""
    terms = selector.requirements
    return ",".join(_FORMATS[one.operator].format(key=one.key, values=",".join(one.values)) for one in terms)


def parse_selector(text: str) -> Selector:
    """Return the selector of a text like `a=b,c in (d,e),!f,g,h!=i`; raise ValueError for other texts."""
    tokens = _Tokens(text)
    terms: list[Requirement] = []
    while not tokens.is_done():
        terms.append(_term(tokens))
        if not tokens.is_done():
            tokens.expect(",")
            if tokens.is_done():
                raise ValueError(f"expected a term after the last comma in {text!r}")
    return Selector(tuple(terms))


class _Tokens:
    """The tokens of a selector, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rest = [found["sign"] or found["word"] for found in _TOKEN.finditer(text.strip())][::-1]

    def is_done(self) -> bool:
        return not self._rest

    def peek(self) -> str:
        return self._rest[-1] if self._rest else ""

    def take(self) -> str:
        if not self._rest:
            raise ValueError(f"expected more at the end of {self.text!r}")
        return self._rest.pop()

    def word(self) -> str:
        token = self.take()
        if token[0] in "=!,()<>":
            raise ValueError(f"expected a name, got {token!r} in {self.text!r}")
        return token

    def expect(self, sign: str) -> None:
        token = self.take()
        if token != sign:
            raise ValueError(f"expected {sign!r}, got {token!r} in {self.text!r}")


def _term(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.take()
        return Requirement(tokens.word(), "DoesNotExist")
    key = tokens.word()
    if tokens.is_done() or tokens.peek() == ",":
        return Requirement(key, "Exists")
    operator = tokens.take()
    match operator:
        case "=" | "==" | "!=":
            value = "" if tokens.is_done() or tokens.peek() == "," else tokens.word()
            return Requirement(key, "NotIn" if operator == "!=" else "In", (value,))
        case "in" | "notin":
            return Requirement(key, "In" if operator == "in" else "NotIn", _values(tokens))
    raise ValueError(f"expected =, !=, in or notin, got {operator!r} in {tokens.text!r}")


def _values(tokens: _Tokens) -> tuple[str, ...]:
    tokens.expect("(")
    values: list[str] = []
    while True:
        values.append("" if tokens.peek() in {",", ")"} else tokens.word())
        sign = tokens.take()
        if sign == ")":
            return tuple(values)
        if sign != ",":
            raise ValueError(f"expected ',' or ')', got {sign!r} in {tokens.text!r}")
