"""What a text costs grows with its size, not with its size times its members."""

from __future__ import annotations

import json

from trivet.prefix.prompts.json_text import Item, JsonText


class Counted(JsonText):
    """Counts how many children are made."""

    made = 0

    def _read(self, at: int) -> list[Item]:
        items = super()._read(at)
        self.made += len(items)
        return items


def test_every_child_is_read_once_however_often_places_are_asked_for() -> None:
    body = {f"k{at}": 1 for at in range(2_000)} | {"messages": [{"content": "x"}] * 1_000}
    text = Counted(json.dumps(body).encode())
    for _ in range(3):
        for at in range(1_000):
            text.find(("messages", at, "content"))
    assert text.made == 2_001 + 1_000 + 1_000
