"""One scene for each balancer."""
