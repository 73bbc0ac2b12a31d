"""Resources that follow the size of the cluster, without flapping."""
