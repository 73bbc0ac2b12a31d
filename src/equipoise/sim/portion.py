"""Counts that may be written as a percentage, rounded as Kubernetes rounds each of them."""

Portion = int | str
"""Such as 2 or `25%`."""


def of(portion: Portion, total: int, *, is_rounded_up: bool) -> int:
    """Give the count that a portion of a total is."""
    if isinstance(portion, int):
        return portion
    percent = int(portion.removesuffix("%"))
    # In whole numbers: ceil(0.07 x 100) in floats would be 8.
    return -(-total * percent // 100) if is_rounded_up else total * percent // 100
