"""The demo: every balancer at work in one simulated cluster."""
