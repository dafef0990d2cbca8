"""The semantic tier within the proxy."""
