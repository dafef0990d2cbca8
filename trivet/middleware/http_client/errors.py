"""Why there is no answer, or no whole one. `trivet.middleware.upstream` translates these."""

from __future__ import annotations


class HttpError(Exception):
    """Base of everything that this client raises; the text is the end of a sentence."""


class ConnectTimeout(HttpError):  # noqa: N818 - an event, as the others
    """No connection within the time for it."""


class ConnectFailed(HttpError):  # noqa: N818 - an event, as the others
    """No name, no route, no listener, or no TLS that can be trusted."""


class Silent(HttpError):  # noqa: N818 - an event, as the others
    """The peer said nothing, and took nothing, for too long."""


class Lost(HttpError):  # noqa: N818 - an event, as the others
    """The peer closed the connection before the response was whole.

    `begun` is False if no byte of the response had come.
    """

    def __init__(self, *, begun: bool) -> None:
        super().__init__("the connection was closed")
        self.begun = begun


class Garbage(HttpError):  # noqa: N818 - an event, as the others
    """What came is not an HTTP/1.1 response."""


class Unsendable(HttpError):  # noqa: N818 - an event, as the others
    """The request cannot be written as HTTP/1.1."""
