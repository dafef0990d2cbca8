"""The exact tier: key, entries, stores, collapse."""
