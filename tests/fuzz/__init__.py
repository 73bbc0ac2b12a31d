"""Every reader of foreign data, and the damage that it has to stand."""
