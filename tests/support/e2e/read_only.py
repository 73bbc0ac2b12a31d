"""The role of an account that may only read."""

from equipoise.cli.checks import READS

READ_ONLY = [
    {
        "apiGroups": [group],
        "resources": [f"{resource}/{subresource}" if subresource else resource],
        "verbs": [verb],
    }
    for verb, group, resource, subresource in READS
]


"""Exactly what the doctor says a plan needs."""
