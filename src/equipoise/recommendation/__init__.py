"""HPA and resource advice from a week of history."""
