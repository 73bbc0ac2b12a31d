"""The declaration of a custom resource kind: what the definition needs beyond the models of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; a priority above 0 is shown by `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of custom resource; `body` gives the models of its parts, such as `spec`."""

    group: str
    version: str
    name: str
    plural: str
    description: str
    body: Mapping[str, type[BaseModel]]
    required: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("equipoise",)
    is_namespaced: bool = True
    columns: tuple[Column, ...] = ()

    @property
    def api_version(self) -> str:
        """What a manifest writes as `apiVersion`."""
        return f"{self.group}/{self.version}"

    @property
    def definition_name(self) -> str:
        """The name of the definition, which is fixed by its plural and its group."""
        return f"{self.plural}.{self.group}"

    def is_called(self, word: str) -> bool:
        """Whether a person may mean this kind by this word."""
        names = {self.name, self.plural, self.name.lower(), self.definition_name, *self.short_names}
        return word in names or word.lower() in names
