"""One manifest, judged as the API server would and then as only we can: all problems, each with its path."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails

from equipoise.model.crd.acceptance import Problem, without_nulls
from equipoise.model.crd.fields import Name, Text
from equipoise.model.crd.kind import Kind
from equipoise.model.crd.schema import structural
from equipoise.model.crd.targets import LabelKey, LabelValue
from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.validation import explain

NAMESPACE = Text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a name of small letters, digits and -", 63)


class Metadata(BaseModel):
    """What everybody may write under `metadata`; what the server writes there passes unread."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = None
    generateName: str | None = Field(None, max_length=253)  # noqa: N815 - the API's spelling
    namespace: Annotated[str, NAMESPACE] | None = None
    labels: dict[LabelKey, LabelValue] | None = None
    annotations: dict[LabelKey, str] | None = None


WRITTEN_BY_SERVER = frozenset(
    {
        *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"),
        *("deletionGracePeriodSeconds", "finalizers", "ownerReferences", "selfLink"),
    }
)


def problems(kind: Kind, document: Mapping[str, Any]) -> list[Problem]:
    """Say everything that is wrong with a manifest of this kind; the document holds what JSON can hold."""
    found = list(_names(document))
    for key, part in document.items():
        if key in kind.body:
            found += _judged(kind.body[key], without_nulls(structural(kind.body[key]), part), key)
        elif key not in {"apiVersion", "kind", "metadata"}:
            found.append(Problem(key, "unknown key"))
    found += [Problem(key, "missing") for key in kind.required if document.get(key) is None]
    return found


def _names(document: Mapping[str, Any]) -> Iterator[Problem]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", "expected a mapping with a name")
        return
    if not metadata.get("name") and not metadata.get("generateName"):
        yield Problem("metadata.name", "missing")
    ours = {key: value for key, value in metadata.items() if key not in WRITTEN_BY_SERVER}
    yield from _judged(Metadata, ours, "metadata")


def _judged(model: type[BaseModel], part: Any, at: str) -> Iterator[Problem]:
    try:
        model.model_validate_json(json.dumps(part), strict=True, by_alias=True, by_name=False)
    except DECODE_ERRORS as error:
        yield from explained(error, at)


def explained(error: Exception, at: str) -> Iterator[Problem]:
    """Explain every bad field, not only the first."""
    if not isinstance(error, ValidationError):
        yield Problem(at, str(error))
        return
    for detail in error.errors(include_url=False):
        alone = ValidationError.from_exception_data(
            error.title,
            [
                InitErrorDetails(
                    type=detail["type"], loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {})
                )
            ],
        )
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
        message = explain(alone).removeprefix(f"{path.removeprefix('.') or 'document'}: ")
        message = re.sub(r"^\w+ should have ", "expected ", message).replace(" after validation", "")
        if detail["type"] in {"value_error", "too_long"}:
            message = re.sub(r", got a (mapping|list)$", "", message)  # it says itself what is wrong
        yield Problem(at + path.removesuffix(".[key]"), message)
