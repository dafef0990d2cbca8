"""Several servers behind one upstream name, and what is known of each."""
