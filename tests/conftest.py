"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# A busy machine is no defect: no time limit for one example.
settings.register_profile("trivet", deadline=None)
settings.load_profile("trivet")


@pytest.fixture(autouse=True)
def _log_lines_of_one_test() -> Iterator[None]:
    """What a test makes of structlog's configuration ends with it."""
    before, configured = structlog.get_config(), structlog.is_configured()
    yield
    if not configured:
        structlog.reset_defaults()
    elif structlog.get_config() != before:
        structlog.configure(**before)
