"""Custom resources: their fields, their declaration, and the definitions that are generated from both."""
