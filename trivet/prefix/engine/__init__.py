"""The engine that serves a local model."""
