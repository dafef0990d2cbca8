"""The built-in upstream for tests and trials. It is not a model."""
