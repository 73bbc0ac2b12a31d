"""Wiring and the command line."""
