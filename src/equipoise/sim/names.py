"""Names and identities as Kubernetes makes them, from a seeded chance."""

import hashlib
import uuid
from random import Random

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes spells random suffixes with: no vowels, so no words; no look-alikes."""

_HASH_LENGTH = 10
_SUFFIX_LENGTH = 5


def suffix(chance: Random) -> str:
    """Draw the last part of a pod's name."""
    return "".join(chance.choices(ALPHABET, k=_SUFFIX_LENGTH))


def uid(chance: Random) -> str:
    """Draw an identity that is never used again."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def template_hash(template: object, revision: int) -> str:
    """Name a revision of a template: the same one always gets the same name."""
    digest = hashlib.sha256(f"{revision} {template!r}".encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:_HASH_LENGTH])


def seeded(seed: int, purpose: str) -> Random:
    """Give each purpose a chance of its own, so that one more draw here changes nothing there."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - a simulation must be repeatable, not unguessable
