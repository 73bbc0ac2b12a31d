"""Pods in tiers, kept in Redis (see README.md)."""
