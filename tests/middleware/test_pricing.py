import subprocess
import sys

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.middleware.observe import pricing as module
from trivet.middleware.observe.pricing import Pricing, Rate, Rates

SNAPSHOT = genai_prices.data_snapshot.get_snapshot()
MODELS = [(provider.id, model.id) for provider in SNAPSHOT.providers for model in provider.models]


def loaded() -> Pricing:
    pricing = Pricing()
    pricing.wait()
    return pricing


PRICING = loaded()


def listed(model: str, usage: Usage, provider: str | None = None) -> float:
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return float(genai_prices.calc_price(counted, model, provider_id=provider).total_price)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    total = draw(st.integers(0, 1_500_000))
    read = draw(st.integers(0, total))
    write = draw(st.integers(0, total - read))
    return Usage(total, draw(st.integers(0, 100_000)), read, write)


@given(st.sampled_from(MODELS), usages())
def test_a_price_is_the_one_that_genai_prices_calculates(
    listed_model: tuple[str, str], usage: Usage
) -> None:
    provider, model = listed_model
    if PRICING.price(model, provider, Usage(0, 0)) is None:
        return
    nothing = genai_prices.Usage(input_tokens=0, output_tokens=0)
    found = genai_prices.calc_price(nothing, model, provider_id=provider).model_price
    # What the list has no price for is priced by other rules.
    if found.cache_read_mtok is None:
        usage = usage._replace(cache_read_tokens=0)
    if found.cache_write_mtok is None:
        usage = usage._replace(cache_write_tokens=0)
    ours = PRICING.price(model, provider, usage)
    if ours is not None:
        assert ours == pytest.approx(listed(model, usage, provider), rel=1e-6, abs=1e-12)


def test_a_known_provider_that_lacks_the_model_has_no_price_for_it() -> None:
    assert PRICING.price("claude-sonnet-4-5", None, Usage(10, 10)) is not None
    assert PRICING.price("claude-sonnet-4-5", "voyageai", Usage(10, 10)) is None


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert loaded().price("gpt-4o", "openai", Usage(10, 10)) is None


def test_openai_cached_tokens_are_part_of_the_input() -> None:
    """K1: 17,903 prompt tokens of which 17,817 were cached are 86 plain ones."""
    usage = Usage(17_903, 0, cache_read_tokens=17_817)
    price = PRICING.price("gpt-4o", None, usage)
    assert price == pytest.approx((86 * 2.5 + 17_817 * 1.25) / 1e6)


def test_anthropic_reads_and_writes_are_not_counted_twice() -> None:
    """K2, K4: input 5, read 128,955, creation 1,253 are 130,213 in all."""
    usage = Usage(130_213, 0, cache_read_tokens=128_955, cache_write_tokens=1_253)
    price = PRICING.price("claude-sonnet-4-5", None, usage)
    assert price == pytest.approx((5 * 3 + 128_955 * 0.3 + 1_253 * 3.75) / 1e6)


def test_a_write_for_the_longer_lifetime_has_its_own_price() -> None:
    usage = Usage(1_000, 0, cache_write_tokens=1_000, cache_write_long_tokens=400)
    price = PRICING.price("claude-sonnet-4-5", None, usage)
    assert price == pytest.approx((600 * 3.75 + 400 * 6) / 1e6)


def test_what_the_list_lacks_is_priced_by_the_providers_multiplier() -> None:
    """OpenAI's 12 hours cost 2.5 times the input price; genai-prices has the 30 minutes only."""
    usage = Usage(1_000, 0, cache_write_tokens=1_000, cache_write_long_tokens=1_000)
    assert PRICING.price("gpt-5.6", None, usage) == pytest.approx(1_000 * 4 * 2.5 / 1e6)


def test_gemini_cached_tokens_are_charged_once() -> None:
    """K3: 262,960 tokens of which 257,955 were cached, in the tier above 200,000."""
    usage = Usage(262_960, 0, cache_read_tokens=257_955)
    price = PRICING.price("gemini-2.5-pro", None, usage)
    assert price == pytest.approx(listed("gemini-2.5-pro", usage))
    assert price is not None
    assert price < listed("gemini-2.5-pro", Usage(262_960, 0)) / 2


@pytest.mark.parametrize("model", ["SmolLM2-135M", "mock-1", "", "my-gpt-4-finetune", "x" * 10_000])
def test_an_unlisted_model_has_no_price(model: str) -> None:
    assert PRICING.price(model, "local", Usage(10, 10)) is None


def test_an_upstream_that_is_no_provider_does_not_hide_the_model() -> None:
    usage = Usage(1_000, 100)
    assert PRICING.price("gpt-4o", "local", usage) == PRICING.price("gpt-4o", "openai", usage)


@pytest.mark.parametrize("model", ["text-embedding-3-small", "openai/text-embedding-3-small"])
def test_an_embedding_model_is_found_by_openais_name(model: str) -> None:
    assert PRICING.price(model, "upstream-1", Usage(1_000, 0)) == pytest.approx(0.00002)


def test_tokens_without_a_listed_price_make_the_sum_unknown() -> None:
    assert PRICING.price("text-embedding-3-small", None, Usage(1_000, 1)) is None


def test_usage_that_contradicts_itself_has_no_price() -> None:
    assert PRICING.price("gpt-4o", None, Usage(10, 0, cache_read_tokens=20)) is None


def test_nothing_is_known_until_the_list_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_load_price_list", lambda: None)
    pricing = Pricing()
    assert pricing.loading
    assert pricing.price("gpt-4o", None, Usage(1, 1)) is None
    pricing.wait()
    assert not pricing.loading
    assert pricing.price("gpt-4o", None, Usage(1, 1)) is None


def test_names_beyond_the_bound_are_unknown_and_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MODELS", 3)
    pricing = loaded()
    for number in range(10):
        assert pricing.price(f"made-up-{number}", None, Usage(1, 1)) is None
    assert len(pricing._rates) == 3


def test_the_rate_is_that_of_the_last_step_exceeded() -> None:
    rate = Rate(1.0, ((100, 2.0), (200, 3.0)))
    assert [rate.at(tokens) for tokens in (0, 100, 101, 200, 201)] == [1, 1, 2, 2, 3]


def test_a_fee_for_the_request_is_added() -> None:
    rates = Rates(0.01, Rate(1.0), Rate(2.0), None, None)
    assert rates.cost(Usage(3, 4)) == pytest.approx(3 + 8 + 0.01)


def test_importing_the_observers_loads_none_of_the_heavy_libraries() -> None:
    heavy = "genai_prices", "prometheus_client", "opentelemetry", "fastapi", "starlette"
    code = (
        "import sys; import trivet.middleware.observe.metrics, trivet.middleware.observe.tracing, "
        "trivet.middleware.observe.logs, trivet.middleware.observe.observing, "
        "trivet.middleware.admin.port, "
        "trivet.middleware.status, trivet.middleware.admin.client; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("model", "short", "long"),
    [
        ("claude-sonnet-4-5", 3.0, 6.0),
        ("gpt-5.4", 2.5, 5.0),
        ("gemini-2.5-pro", 1.25, 2.5),
        ("made-up", None, None),
    ],
)
def test_an_input_token_costs_what_the_length_of_its_prompt_says(
    model: str, short: float | None, long: float | None
) -> None:
    for tokens, million in ((10_000, short), (1_000_000, long)):
        price = PRICING.input_price(model, None, tokens)
        assert price == (None if million is None else pytest.approx(million / 1e6))
