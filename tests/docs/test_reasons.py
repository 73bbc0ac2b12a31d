"""The reference of reasons: each is explained, with a sentence that is printed."""

import re

import pytest

from equipoise.core.reason import Code, explanations
from tests.support.docs.reasons import TEXTS, sentences, written


def test_every_reason_is_explained_with_a_sentence_as_it_is_printed() -> None:
    """What decides prints the example; `python -m tests.support.docs.reasons` writes it anew."""
    printed = sentences()
    assert {each.code for each in explanations()} == set(Code)
    assert {(each.group, each.code.value): each.example for each in explanations()} == printed
    assert written(TEXTS.read_text()) == TEXTS.read_text()


@pytest.mark.parametrize("code", Code)
def test_an_explanation_says_what_to_do_in_whole_sentences(code: Code) -> None:
    """A reader who meets the code for the first time needs no other page."""
    own = [each for each in explanations() if each.code is code]
    assert len({each.group for each in own}) == len(own) >= 1
    for text in [text for each in own for text in (each.meaning, each.remedy)]:
        assert re.fullmatch(r"[A-Z`].*[.]", text), text
