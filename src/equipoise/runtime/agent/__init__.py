"""The node agent: one process per node."""
