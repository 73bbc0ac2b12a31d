"""Custom resources: definitions, manifests, and whether both judges agree."""
