"""A request before the pipeline: read, known, allowed, or answered at once."""
