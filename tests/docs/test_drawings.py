"""What documents show of the code is what the code says."""

from tools.drawings import PAGE, page


def test_the_architecture_page_is_drawn_from_the_code() -> None:
    """Layers from the import contract, states from their table; `python -m tools.drawings` draws it."""
    assert page() == PAGE.read_text()
