"""A Prometheus, or Thanos, Mimir or VictoriaMetrics, as a source of usage."""
