"""LangChain's cache in Trivet's store, and LangChain by the transport.

trivet upstream --port 9000
OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_API_KEY=any python examples/langchain_cache.py
"""

import time

import httpx2
from langchain_core.globals import set_llm_cache
from langchain_openai import ChatOpenAI

from trivet import AsyncTrivetTransport, TrivetTransport
from trivet.library.langchain import TrivetCache


def main() -> None:
    # LangChain's own key: the account is not in it, so the tenant has to be told.
    set_llm_cache(TrivetCache(tenant="support"))
    model = ChatOpenAI(model="gpt-4.1-mini", temperature=0)
    for _ in range(2):
        began = time.perf_counter()
        print(model.invoke("What is a trivet?").content, f"{time.perf_counter() - began:.3f} s")
    set_llm_cache(None)

    # By the transport: whole requests, streams too.
    with httpx2.Client(transport=TrivetTransport()) as http:
        model = ChatOpenAI(
            model="gpt-4.1-mini",
            temperature=0,
            http_client=http,
            http_async_client=httpx2.AsyncClient(transport=AsyncTrivetTransport()),
        )
        for _ in range(2):
            print("".join(str(part.content) for part in model.stream("What is a trivet?")))


if __name__ == "__main__":
    main()
