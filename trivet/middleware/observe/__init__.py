"""What is told of requests: logs, figures, spans."""
