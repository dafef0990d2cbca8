"""Which replica holds a prefix, and which one is asked."""
