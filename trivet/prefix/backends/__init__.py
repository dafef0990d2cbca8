"""How each provider and engine is asked for prefix caching, and how it reports what it saved."""
