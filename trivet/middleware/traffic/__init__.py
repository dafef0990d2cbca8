"""The traffic log, the samples of which a person says what is right."""
