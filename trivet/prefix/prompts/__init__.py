"""Prompts as prefix caches read them, and edits on their text."""
