"""`equipoise pools serve`: allocation over HTTP."""
