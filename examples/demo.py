"""A scripted set of requests through Trivet, sent with the official SDKs, and what became of each.

    python examples/demo.py --base-url http://127.0.0.1:8080 --model smollm2

Run it against any Trivet; `make demo` starts a model and a proxy for it.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

from trivet.middleware.mock_upstream.run import running

HANDBOOK = """\
You answer for the support desk of a small airline. Rules of the desk:
- Greet the caller by name where you know it, and by nothing else where you do not.
- A cabin bag may weigh eight kilograms and measures at most 55 by 40 by 23 centimetres.
- A checked bag may weigh 23 kilograms; up to 32 kilograms it costs 40 euros more.
- Nothing above 32 kilograms is carried, because people have to lift it by hand.
- Musical instruments travel in the cabin if a seat was bought for them.
- Skis and bicycles are announced two days before the flight and cost 50 euros each way.
- Small animals travel in the cabin in a soft bag of at most six kilograms with the animal.
- Guide dogs travel free of charge and need no bag, but papers of their training.
- Online check-in opens 48 hours before departure and closes one hour before it.
- The desk at the airport closes 40 minutes before departure, the gate 15 minutes before.
- A name may be corrected once, free of charge, as long as it stays the same person.
- A flight may be moved to another day for 60 euros and the difference in fare.
- A ticket of the light fare cannot be moved, but its taxes are paid back on request.
- After a delay of two hours callers get a voucher for food and two phone calls.
- After a delay of three hours they may claim money unless the weather was the cause.
- After a delay of five hours they may give the ticket back and are paid in full.
- Where a night falls into the delay we pay for the hotel and the way to it and back.
- Lost bags are reported at the desk in the arrivals hall before leaving the airport.
- A bag that is not found after 21 days counts as lost, and is paid for by its weight.
- Children under two sit on a lap and pay a tenth of the fare; each adult takes one.
- Children from five to eleven may fly alone if an adult brings and another meets them.
- Callers who need a wheelchair say so 48 hours before, so that one is at the kerb.
- Medicine that has to stay cold may be given to the crew in a closed and labelled box.
- Meals without meat, without gluten or without nuts are ordered a day before.
- Never promise what these rules do not hold; offer to ask a colleague instead.
- Answer in one short sentence and in the language in which you were asked.
"""
"""A system prompt as long as those of real desks: each request begins with it."""

FRANCE = "What is the capital of France?"
GERMANY = "What is the capital of Germany?"


@dataclass(frozen=True)
class Sent:
    """One answered request."""

    status: str
    """The Cache-Status header."""
    text: str
    tokens: int


@dataclass(frozen=True)
class Step:
    """One request to send."""

    title: str
    send: Callable[[], Sent]


def chat(client: openai.OpenAI, model: str, question: str, **more: Any) -> Sent:
    """Ask for JSON."""
    messages: Any = [{"role": "user", "content": question}]
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 60, **more}
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, **options
    )
    answer = raw.parse()
    tokens = answer.usage.total_tokens if answer.usage else 0
    return Sent(
        raw.headers.get("cache-status", ""), answer.choices[0].message.content or "", tokens
    )


def chat_stream(client: openai.OpenAI, model: str, question: str) -> Sent:
    """Ask for a stream, as a chat window does."""
    messages: Any = [{"role": "user", "content": question}]
    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,
        temperature=0,
        max_tokens=60,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, tokens = "", 0
    for chunk in raw.parse():
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        tokens = chunk.usage.total_tokens if chunk.usage else tokens
    return Sent(raw.headers.get("cache-status", ""), text, tokens)


def message(client: anthropic.Anthropic, model: str, question: str, stream: bool) -> Sent:
    """Ask with Anthropic's SDK."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 60,
        "messages": [{"role": "user", "content": question}],
        # The SDK has no `temperature` since its version 2; without one an answer is sampled, and
        # a sampled answer is not cached by default.
        "extra_body": {"temperature": 0},
    }
    if stream:
        with client.messages.stream(**body) as events:
            headers, answer = events.response.headers, events.get_final_message().to_dict()
    else:
        raw = client.messages.with_raw_response.create(**body)
        headers, answer = raw.headers, raw.parse().to_dict()
    usage: Any = answer["usage"]
    content: Any = answer["content"]
    read = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    tokens = usage["input_tokens"] + read + written + usage["output_tokens"]
    return Sent(headers.get("cache-status", ""), content[0]["text"], tokens)


def steps(base_url: str, model: str) -> list[Step]:
    """The script."""
    ours = openai.OpenAI(base_url=f"{base_url}/v1", api_key="team-a", max_retries=0)
    theirs = openai.OpenAI(base_url=f"{base_url}/v1", api_key="team-b", max_retries=0)
    claude = anthropic.Anthropic(base_url=base_url, api_key="team-a", max_retries=0)
    version = {"Trivet-Version": "prompt=2"}
    return [
        Step("OpenAI SDK: capital of France", lambda: chat(ours, model, FRANCE)),
        Step("the same again", lambda: chat(ours, model, FRANCE)),
        Step("the same, as a stream", lambda: chat_stream(ours, model, FRANCE)),
        Step("another question: Germany", lambda: chat(ours, model, GERMANY)),
        Step("sampled (temperature 0.8)", lambda: chat(ours, model, FRANCE, temperature=0.8)),
        Step(
            "France, prompt version 2",
            lambda: chat(ours, model, FRANCE, extra_headers=version),
        ),
        Step(
            "France, prompt version 2, again",
            lambda: chat(ours, model, FRANCE, extra_headers=version),
        ),
        Step("France, for another tenant", lambda: chat(theirs, model, FRANCE)),
        Step("France, by Anthropic's SDK", lambda: message(claude, model, FRANCE, stream=False)),
        Step("the same, as a stream", lambda: message(claude, model, FRANCE, stream=True)),
    ]


@dataclass(frozen=True)
class First:
    """How a streamed answer began."""

    prompt_tokens: int
    cached_tokens: int
    seconds: float
    """From sending the request to the first text."""


def first_text(client: openai.OpenAI, model: str, question: str) -> First:
    """Ask for a stream behind the long system prompt."""
    messages: Any = [
        {"role": "system", "content": HANDBOOK},
        {"role": "user", "content": question},
    ]
    began, seconds, usage = time.perf_counter(), 0.0, None
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        temperature=0,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    ):
        if chunk.choices and chunk.choices[0].delta.content and not seconds:
            seconds = time.perf_counter() - began
        usage = chunk.usage or usage
    details = usage.prompt_tokens_details if usage else None
    cached = details.cached_tokens if details else 0
    return First(usage.prompt_tokens if usage else 0, cached or 0, seconds)


def prefixes(base_url: str, model: str) -> None:
    """Different questions behind one long system prompt: the model reads it once a tenant."""
    row = "{:>2}  {:<36} {:<8} {:>13} {:>14} {:>13}".format
    print("\nThe prefix tier: new questions, all behind the same long system prompt.\n")
    print(row("", "question", "tenant", "prompt tokens", "of them cached", "first token"))
    script = [
        ("team-a", "How heavy may my cabin bag be?"),
        ("team-a", "Can I take my skis along?"),
        ("team-a", "When does online check-in open?"),
        ("team-b", "How heavy may my cabin bag be?"),
        ("team-b", "Does my guide dog fly free?"),
    ]
    for number, (tenant, question) in enumerate(script, 1):
        client = openai.OpenAI(base_url=f"{base_url}/v1", api_key=tenant, max_retries=0)
        told = first_text(client, model, question)
        shown = f"{1000 * told.seconds:,.0f} ms"
        counts = (str(told.prompt_tokens), str(told.cached_tokens))
        print(row(number, question, tenant, *counts, shown), flush=True)
    print("\nThe first of each tenant finds nothing: no tenant's prompts speed up another's.")


def became(status: str) -> tuple[str, str, bool]:
    """Tier, outcome, and whether it was a hit, out of a Cache-Status header (RFC 9211)."""
    last = status.rsplit(",", 1)[-1].strip()
    tier = last.split(";", 1)[0].removeprefix("trivet-")
    if "; hit" in last:
        return tier, "hit", True
    forward = re.search(r"fwd=([a-z-]+)", last)
    detail = re.search(r'detail="?([^";]+)', last)
    outcome = forward[1] if forward else last or "no Cache-Status"
    if detail:
        outcome += f" ({detail[1]})"
    return "upstream" if forward else tier, outcome, False


def warm_up() -> None:
    """Send the script to the built-in upstream: on first use the SDKs take 0.1 s for themselves."""
    with running() as (url, _):
        for step in steps(url, "mock"):
            step.send()


def run(base_url: str, model: str) -> int:
    """Send the script, print the table, return how many were hits."""
    warm_up()
    print(f'\nThe question is "{FRANCE}" unless said.\n')
    row = "{:>2}  {:<32} {:<9} {:<18} {:>9} {:>12}".format
    print(row("", "request", "tier", "status", "time", "tokens saved"))
    saved = hits = 0
    first = ""
    for number, step in enumerate(steps(base_url, model), 1):
        start = time.perf_counter()
        sent = step.send()
        took = 1000 * (time.perf_counter() - start)
        tier, outcome, hit = became(sent.status)
        first = first or sent.text
        hits += hit
        saved += sent.tokens if hit else 0
        shown = f"{took:,.1f} ms"
        print(
            row(number, step.title, tier, outcome, shown, sent.tokens if hit else "-"), flush=True
        )
    print("\n6, 8 and 9 ask the model anew: prompt version, tenant and API are part of the key.")
    print(f"{hits} hits, {saved} tokens saved. The model's answer to 1: {first.strip()}")
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description="Send a scripted set of requests through Trivet.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080", help="without /v1")
    parser.add_argument("--model", default="smollm2")
    asked = parser.parse_args()
    run(asked.base_url, asked.model)
    prefixes(asked.base_url, asked.model)


if __name__ == "__main__":
    main()
