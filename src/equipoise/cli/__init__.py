"""The command line: one module for the commands of a balancer, others for what they print."""
