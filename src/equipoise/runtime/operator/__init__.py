"""The operator: a Lease, caches, a journal and one thread for each balancer's loop."""
