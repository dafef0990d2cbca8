"""The proxy: app, pipeline, upstream client, dialects, admin API."""
