"""OpenAI's SDK with the cache in this process: no proxy, one argument more.

    trivet upstream --port 9000
    OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_API_KEY=any python examples/openai_client.py

The first run asks the model, the second is answered from the store.
"""

from openai import DefaultHttpxClient, OpenAI

from trivet import TrivetTransport


def main() -> None:
    with OpenAI(http_client=DefaultHttpxClient(transport=TrivetTransport())) as client:
        for _ in range(2):
            reply = client.chat.completions.with_raw_response.create(
                model="gpt-4.1-mini",
                temperature=0,
                messages=[{"role": "user", "content": "What is a trivet?"}],
            )
            print(reply.headers["cache-status"])
            print(reply.parse().choices[0].message.content)

        stream = client.chat.completions.create(
            model="gpt-4.1-mini",
            temperature=0,
            messages=[{"role": "user", "content": "What is a trivet?"}],
            stream=True,
        )
        print(stream.response.headers["cache-status"])
        for chunk in stream:
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
