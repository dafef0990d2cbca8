"""A FastAPI app that serves an LLM API itself, with the cache in front of it.

    uvicorn examples.fastapi_app:app --port 8000

Run as a script it asks itself twice: the second request does not reach the route.
"""

from typing import Any

from fastapi import FastAPI

from trivet import TrivetMiddleware

app = FastAPI()
app.add_middleware(TrivetMiddleware, store="memory")
asked = 0


@app.post("/v1/chat/completions")
async def chat(body: dict[str, Any]) -> dict[str, Any]:
    """Stands for an app's own agent, model or retrieval."""
    global asked
    asked += 1
    text = f"You said: {body['messages'][-1]['content']}"
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chat-{asked}",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
    }


def main() -> None:
    from fastapi.testclient import TestClient

    body = {"model": "own", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}
    with TestClient(app) as client:
        for _ in range(2):
            reply = client.post("/v1/chat/completions", json=body)
            print(reply.headers["cache-status"])
    print(f"the route was asked {asked} time(s)")


if __name__ == "__main__":
    main()
