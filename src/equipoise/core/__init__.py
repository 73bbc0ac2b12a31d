"""The nouns: quantities, references, reasons, actions, decisions, records."""
