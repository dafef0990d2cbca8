"""What is written from code: reference pages, the Grafana dashboard, the Prometheus rules.

`python -m generate` writes the files, `python -m generate --check` says which are not current.
"""
