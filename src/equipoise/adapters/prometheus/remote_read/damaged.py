"""What is wrong with an answer's bytes; who read them says where they came from."""

from __future__ import annotations


class Damaged(Exception):  # noqa: N818 - reads as a fact
    """Bytes that are not what they must be."""


class TooMuch(Exception):  # noqa: N818 - reads as a fact
    """Bytes that would take more memory than they may."""
