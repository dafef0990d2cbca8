"""`trivet prefix` and `trivet warm`."""
