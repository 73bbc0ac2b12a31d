"""Tiers and their targets, read from `PREFIX:tier:config` in any of three shapes.

{"tiers": {"gold": {"type": "exclusive", "target": 4}}, "default_chain": ["gold"]}
{"gold": {"type": "exclusive", "target": 4}}
{"gold": 4}
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from equipoise.core.documents import read_json, validated
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.pools import expect_name
from equipoise.crd.fields import INTEGER_MAX, SchemaPart

BALANCER = "pools"

CONCURRENT_MAX = 5
"""How many calls a pod of a shared tier takes by default."""


class TierType(StrEnum):
    """How many calls a pod of a tier takes: one, or several."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


Name = Annotated[str, AfterValidator(expect_name)]
Pods = Annotated[int, Field(strict=True, ge=0, le=INTEGER_MAX)]


class Tier(SchemaPart):
    """One tier: its type, and how many pods it should have. A target of 0 empties it."""

    type: TierType
    target: Pods
    concurrent_max: Annotated[int, Field(strict=True, ge=1, le=INTEGER_MAX)] = Field(
        CONCURRENT_MAX, alias="max_concurrent"
    )

    @property
    def is_shared(self) -> bool:
        """Whether its pods take several calls."""
        return self.type is TierType.SHARED


class TierPolicy(SchemaPart):
    """All tiers, and the order in which they are filled."""

    tiers: dict[Name, Tier]
    default_chain: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _chain_of_tiers(self) -> Self:
        if not self.tiers:
            raise ValueError("expected at least one tier")
        names: set[str] = set()
        for number, name in enumerate(self.default_chain):
            if name not in self.tiers:
                raise ValueError(f"default_chain[{number}]: expected one of the tiers, got {name!r}")
            if name in names:
                raise ValueError(f"default_chain[{number}]: expected each tier once, got {name!r} twice")
            names.add(name)
        return self

    @property
    def chain(self) -> tuple[str, ...]:
        """The tiers in order; by default the exclusive by name, then the shared by name."""
        if self.default_chain:
            return self.default_chain
        return tuple(sorted(self.tiers, key=lambda name: (self.tiers[name].is_shared, name)))

    @property
    def pods_targeted(self) -> int:
        """The sum of the targets of the chain."""
        return sum(self.tiers[name].target for name in self.chain)


def read_policy(text: str | None, source: str) -> TierPolicy:
    """Read the config in any of its shapes, or refuse it with the path of the bad field."""
    if text is None:
        raise BadInput(
            f"{source}: missing; `equipoise pools config set NAME=PODS,...` writes it, such as gold=4,basic=2"
        )
    try:
        document = read_json(text)
    except DECODE_ERRORS as error:
        raise BadInput(f"{source}: expected JSON: {error}") from error
    return policy_from(document, source)


def policy_from(document: object, source: str) -> TierPolicy:
    """Read a parsed config in any of its shapes."""
    if not isinstance(document, Mapping):
        raise BadInput(f"{source}: expected a mapping of tiers")
    if "tiers" in document:
        return _validated(document, source)
    if document and all(
        isinstance(value, int) and not isinstance(value, bool) for value in document.values()
    ):
        document = {name: {"type": "exclusive", "target": target} for name, target in document.items()}
    return _validated({"tiers": document}, source, implied="tiers.")


def _validated(document: Mapping[str, Any], source: str, implied: str = "") -> TierPolicy:
    try:
        return validated(TierPolicy, document, source)
    except BadInput as error:
        # Errors name the path that the user wrote: a map of tiers alone has no `tiers`.
        text = str(error).removeprefix(f"{source}: ").removeprefix("document: ")
        text = text.removesuffix(", got a mapping").removeprefix(implied).replace(".[key]", "")
        raise BadInput(f"{source}: {text}") from error


def unfilled(policy: TierPolicy, pods: int) -> str:
    """Return a sentence where there are fewer pods than the targets demand; empty otherwise."""
    targeted = policy.pods_targeted
    if pods >= targeted:
        return ""
    return f"the targets demand {targeted} pods, and there are {pods}: some tiers stay under their targets"


def tiers_for_scripts(text: str | None, source: str) -> str:
    """Return the config's tiers as the scripts in Redis read them, or refuse the config."""
    return encode_tiers(read_policy(text, source))


def encode_tiers(policy: TierPolicy) -> str:
    """Return the tiers as JSON for the scripts, the chain first."""
    chain = policy.chain
    rest = sorted(set(policy.tiers) - set(chain))
    return "".join(
        f"{name} {tier.type} {tier.target} {tier.concurrent_max} {1 if name in chain else 0};"
        for name in [*chain, *rest]
        for tier in [policy.tiers[name]]
    )
