"""The operator's shell: settings, threads, health, metrics and logs around the balancers' loops."""
