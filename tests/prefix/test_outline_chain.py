"""The chain of digests over an outline."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.messages import Api
from trivet.prefix.prompts.outline import chain, outline_of


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        (Api.MESSAGES, {"speed": "fast"}),
        (Api.MESSAGES, {"tool_choice": {"type": "none"}}),
        (Api.CHAT, {"verbosity": "low"}),
        (Api.CHAT, {"response_format": {"type": "json_object"}}),
    ],
)
def test_settings_of_a_level_without_parts_count_all_the_same(
    api: Api, fields: dict[str, Any]
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert chain(outline_of(api, body)) != chain(outline_of(api, body | fields))
