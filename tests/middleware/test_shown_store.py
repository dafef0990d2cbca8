"""What people read of a store's place has no password in it."""

from __future__ import annotations

import pytest

from trivet.middleware.running.config import StoreConfig
from trivet.middleware.running.stores import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory", "memory"),
        ("redis://u:pw@h:6379/0", "redis://h:6379/0"),
        (
            "redis+sentinel://:pw@h:1/main/0?sentinel_password=pw2&sentinel_username=u",
            "redis+sentinel://h:1/main/0?sentinel_password=...&sentinel_username=u",
        ),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert shown_url(StoreConfig(url=url)) == shown
