"""Model calls in the native APIs of Gemini and Bedrock: no dialect reads them, their prefixes do.

https://ai.google.dev/api/generate-content,
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, and for Claude
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html, whose body is
one of Anthropic's Messages API without the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from trivet.messages import Api
from trivet.prefix.prompts.outline import NativeApi

_PATHS: Final[Mapping[str, tuple[tuple[Api | NativeApi, re.Pattern[str]], ...]]] = {
    "gemini": (
        (
            NativeApi.GENERATE,
            re.compile(r"/(?:.*/)?models/([^/:]+):(?:streamGenerateContent|generateContent)"),
        ),
    ),
    "bedrock": (
        (NativeApi.CONVERSE, re.compile(r"/model/([^/]+)/converse(?:-stream)?")),
        (
            Api.MESSAGES,
            re.compile(r"/model/([^/]*claude-[^/]*)/invoke(?:-with-response-stream)?"),
        ),
    ),
}


class Native(NamedTuple):
    """What the path of a native call says."""

    api: Api | NativeApi
    model: str


def native_of(kind: str, method: str, path: str) -> Native | None:
    """The native call that this is at a prefix cache of that kind; None for anything else."""
    for api, pattern in _PATHS.get(kind, ()) if method == "POST" else ():
        found = pattern.fullmatch(path)
        if found is not None:
            return Native(api, unquote(found[1]))
    return None
