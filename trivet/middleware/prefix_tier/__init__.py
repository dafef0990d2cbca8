"""The prefix tier within the proxy: what a model call is sent as, and what it cost."""
