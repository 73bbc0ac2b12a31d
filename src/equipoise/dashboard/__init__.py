"""The dashboard: the content of the journal, as read-only pages."""
