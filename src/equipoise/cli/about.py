"""`equipoise explain REASON` and `equipoise version`: what a reason means, and which Equipoise this is."""

import platform
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from equipoise import __version__
from equipoise.cli import options
from equipoise.core.errors import BadInput, did_you_mean
from equipoise.core.reason import Code, Explanation, explanations
from equipoise.runtime.output import Format, print_document, print_sentences


def version(output: options.Output = Format.TABLE) -> None:
    """Print the version of this command line."""
    client = {
        "version": __version__,
        "pythonVersion": platform.python_version(),
        "platform": f"{sys.platform}/{platform.machine()}",
    }
    if output is not Format.TABLE:
        print_document({"clientVersion": client}, output)
        return
    print(f"equipoise {__version__} (Python {client['pythonVersion']}, {client['platform']})")


def explain(
    code: Annotated[
        str, typer.Argument(metavar="REASON", help="Reason, such as NoHotPods; by default all are listed.")
    ] = "",
    output: options.Output = Format.TABLE,
) -> None:
    """Explain a reason: what it means, a sentence as it is printed, and what to do. Needs no cluster."""
    chosen = [_named(code)] if code else sorted({each.code for each in explanations()})
    found = {each: [entry for entry in explanations() if entry.code is each] for each in chosen}
    if output is not Format.TABLE:
        print_document({"reasons": [_document(*each) for each in found.items()]}, output)
    elif code:
        _print(chosen[0], found[chosen[0]])
    else:
        from equipoise.runtime.console import Console, table

        laid_out = table("REASON", "PART", "MEANING", folded=("MEANING",))
        for entries in found.values():
            for entry in entries:
                laid_out.add_row(entry.code.value, entry.group, _unquoted(entry.meaning))
        Console().print(laid_out)


def _named(name: str) -> Code:
    """Return the reason of this name, in any case."""
    codes = {code.value.lower(): code for code in Code}
    if name.lower() not in codes:
        question = did_you_mean(name, [code.value for code in Code])
        raise BadInput(f"{name}: expected a reason.{question} `equipoise explain` lists them all")
    return codes[name.lower()]


def _document(code: Code, entries: Sequence[Explanation]) -> dict[str, Any]:
    parts = [
        {"part": each.group, "meaning": each.meaning, "example": each.example or None, "remedy": each.remedy}
        for each in entries
    ]
    return {"reason": code.value, "explanations": parts}


def _print(code: Code, entries: Sequence[Explanation]) -> None:
    print(code.value)
    for each in entries:
        print(f"\n{each.group}")
        print_sentences(f"  Meaning: {_unquoted(each.meaning)}")
        if each.example:
            print_sentences(f"  Example: {each.example}")
        print_sentences(f"  Remedy:  {_unquoted(each.remedy)}")


def _unquoted(text: str) -> str:
    """Return a text of a page without the quotes of code, which a terminal does not need."""
    return text.replace("`", "")
