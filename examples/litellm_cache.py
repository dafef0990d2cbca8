"""LiteLLM with its cache in Trivet's store.

trivet upstream --port 9000
OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_API_KEY=any python examples/litellm_cache.py
"""

import litellm

from trivet.library.litellm import TrivetCache


def main() -> None:
    litellm.cache = TrivetCache(tenant="support")
    for _ in range(2):
        reply = litellm.completion(
            model="openai/gpt-4.1-mini",
            temperature=0,
            messages=[{"role": "user", "content": "What is a trivet?"}],
            caching=True,
        )
        print(reply.choices[0].message.content, reply._hidden_params.get("cache_hit"))


if __name__ == "__main__":
    main()
