"""Text out of generated tokens as they come, and the criterion that ends a generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def earliest(text: str, stops: tuple[str, ...]) -> int:
    """Where the first of `stops` begins in `text`; -1 if none is in it."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=-1)


def held(text: str, stops: tuple[str, ...]) -> int:
    """How many of the last characters of `text` may be the beginning of a stop string."""
    for size in range(min(len(text), max(map(len, stops), default=0)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return size
    return 0


class StopFilter:
    """Passes text on up to the first stop string, which it swallows."""

    def __init__(self, stops: tuple[str, ...], emit: Callable[[str], None]) -> None:
        self.stopped = False
        self._stops = tuple(stop for stop in stops if stop)
        self._emit = emit
        self._rest = ""

    def push(self, text: str, end: bool) -> None:
        """Take more text; `end` says that none follows."""
        if self.stopped:
            return
        text = self._rest + text
        place = earliest(text, self._stops)
        if place >= 0:
            self.stopped = True
            text, self._rest = text[:place], ""
        else:
            keep = 0 if end else held(text, self._stops)
            text, self._rest = text[: len(text) - keep], text[len(text) - keep :]
        if text:
            self._emit(text)


class TextSink:
    """A transformers streamer that decodes tokens and hands text through a `StopFilter`."""

    def __init__(self, tokenizer: Any, stops: tuple[str, ...], emit: Callable[[str], None]) -> None:
        from transformers import TextStreamer

        filtered = self._filter = StopFilter(stops, emit)

        class Streamer(TextStreamer):  # type: ignore[misc]
            def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
                filtered.push(text, stream_end)

        self.streamer = Streamer(tokenizer, skip_prompt=True, skip_special_tokens=True)

    @property
    def stopped(self) -> bool:
        """A stop string was met."""
        return self._filter.stopped


def stop_criteria(ended: Callable[[], bool]) -> Any:
    """transformers' criteria that end the generation once `ended` says so."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    class Ended(StoppingCriteria):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
            return torch.full((input_ids.shape[0],), ended(), dtype=torch.bool)

    return StoppingCriteriaList([Ended()])
