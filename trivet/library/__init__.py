"""Trivet inside an app's own process: transports, an ASGI middleware, and adapters for frameworks.

Nothing is imported here: each module brings the library that it adapts.
"""
