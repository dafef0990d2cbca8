"""The pool of KV blocks: no torch, no files."""
