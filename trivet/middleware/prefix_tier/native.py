"""Model calls in the native APIs of Gemini and Bedrock: no dialect reads them, their prefixes do.

https://ai.google.dev/api/generate-content and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from trivet.prefix.prompts.outline import NativeApi

_PATHS: Final = {
    "gemini": (
        NativeApi.GENERATE,
        re.compile(r"/(?:.*/)?models/([^/:]+):(?:streamGenerateContent|generateContent)"),
    ),
    "bedrock": (NativeApi.CONVERSE, re.compile(r"/model/([^/]+)/converse(?:-stream)?")),
}


class Native(NamedTuple):
    """What the path of a native call says."""

    api: NativeApi
    model: str


def native_of(kind: str, method: str, path: str) -> Native | None:
    """The native call that this is at a prefix cache of that kind; None for anything else."""
    known = _PATHS.get(kind) if method == "POST" else None
    found = known[1].fullmatch(path) if known else None
    return None if known is None or found is None else Native(known[0], unquote(found[1]))
