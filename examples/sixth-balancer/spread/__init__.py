"""Keeps the pods of each workload spread over the nodes."""
