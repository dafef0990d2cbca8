"""`trivet check` and `trivet explain`: what would happen to a request, and why."""
