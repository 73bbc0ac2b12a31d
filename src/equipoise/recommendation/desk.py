"""What the recommendation needs of its own kinds. An adapter and the simulator stand behind it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from equipoise.model.crd.definition import Standing
from equipoise.ports import PolicyObject


class Analyses(Protocol):
    """The custom resources in which advice is asked for and given, whoever defined them."""

    def standing(self) -> tuple[Standing, str]:
        """Say whose the definitions are, and how we know where that is not plain."""
        ...

    def analytics(self) -> Sequence[PolicyObject]:
        """List what was asked for; a status knows the generation that it is about."""
        ...

    def recommendations(self) -> Sequence[PolicyObject]:
        """List the advice that was given."""
        ...

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Make a Recommendation, named by the server; after a lost answer there may be one more."""
        ...

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        """Change what becomes of advice; StoreConflict when it has changed since it was read."""
        ...

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace the status the way its definition allows; StoreConflict when it has changed meanwhile."""
        ...

    def delete(self, recommendation: PolicyObject) -> None:
        """Remove exactly this one; one that is gone already is fine."""
        ...
