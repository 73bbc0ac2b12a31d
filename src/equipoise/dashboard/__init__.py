"""The dashboard: what the journal says, as pages. It only reads."""
