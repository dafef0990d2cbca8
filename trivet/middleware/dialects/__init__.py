"""One module an API: decode, record, replay, errors."""
