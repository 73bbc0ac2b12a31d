"""May we act now? One question per file; guards only reduce."""
