"""Hot and cold pods of an autoscaled workload."""
