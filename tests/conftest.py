"""What holds for all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# A busy machine is no defect: no time limit for one example.
settings.register_profile("trivet", deadline=None)
settings.load_profile("trivet")


@pytest.fixture(autouse=True)
def _log_lines_of_one_test() -> Iterator[None]:
    """What a test makes of structlog's configuration, and of `logging`'s, ends with it."""
    before, configured = structlog.get_config(), structlog.is_configured()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    ours = [one for one in root.handlers if type(one).__module__.startswith("trivet.")]
    for handler in ours:
        if handler not in handlers:
            root.removeHandler(handler)
            root.setLevel(level)
    if not configured:
        structlog.reset_defaults()
    elif structlog.get_config() != before:
        structlog.configure(**before)
