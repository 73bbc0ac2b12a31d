"""Settings from `--set` and from the environment variables of the earlier rebalancer."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.model.errors import DECODE_ERRORS, BadInput
from equipoise.model.validation import explain
from equipoise.rotation.policy import ENVIRONMENT, RotationPolicy


def rotation_settings(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Read the rotation's variables as settings; an empty one counts as not set."""
    settings: dict[str, Any] = {}
    for name, path in ENVIRONMENT.items():
        value = environment.get(name, "").strip()
        if value:
            _check(name, path, value)
            _put(settings, path, value)
    return settings


def _check(name: str, path: tuple[str, ...], value: str) -> None:
    """Refuse a bad value under the name that the user gave it."""
    alone: dict[str, Any] = {}
    _put(alone, path, value)
    try:
        RotationPolicy.model_validate(alone)
    except DECODE_ERRORS as error:
        message = explain(error).partition(": ")[2]
        raise BadInput(f"environment variable {name}: {message}") from error


def set_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read `--set KEY=VALUE`, where a key may have dots: `kafkaLag.threshold=5`."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not all(key.split(".")):
            raise BadInput(f"--set {text}: expected KEY=VALUE, such as topK=3")
        _put(settings, tuple(key.split(".")), value)
    return settings


def _put(settings: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    *parents, last = path
    for parent in parents:
        inner = settings.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise BadInput(f"--set {'.'.join(path)}: {parent} already has a value of its own")
        settings = inner
    settings[last] = value
