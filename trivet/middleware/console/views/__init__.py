"""What each page of the console shows, as JSON values: one module a page."""
