"""The operator's port: what it offers, and what answers it in each process."""
