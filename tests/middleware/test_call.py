"""A live reply lets go of what its body comes from, read or not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from trivet.middleware.call import Live


def live(released: list[str], *, broken: bool = False) -> Live:
    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield b"a"
            yield b"b"
        finally:
            released.append("chunks")
            if broken:
                raise RuntimeError

    return Live(200, [], chunks(), lambda: released.append("source"))


async def test_one_that_was_never_read_lets_go() -> None:
    released: list[str] = []
    await live(released).close()
    assert released == ["source"]


async def test_one_that_was_read_in_part_ends_before_it_lets_go() -> None:
    released: list[str] = []
    reply = live(released)
    assert await anext(reply.chunks) == b"a"
    await reply.close()
    assert released == ["chunks", "source"]


async def test_one_that_cannot_end_lets_go_all_the_same() -> None:
    released: list[str] = []
    reply = live(released, broken=True)
    await anext(reply.chunks)
    with pytest.raises(RuntimeError):
        await reply.close()
    assert released == ["chunks", "source"]
