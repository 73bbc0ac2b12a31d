"""Pods on a node and its waterlines: throttle and evict no more than closes the gap."""
