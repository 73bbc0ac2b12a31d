"""Other servers that understand PromQL, beside Prometheus 2.42: `make compat` runs what is here."""
