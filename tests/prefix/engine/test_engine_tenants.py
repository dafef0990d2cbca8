"""Whose space of the cache a request reads and writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError
from trivet.prefix.engine.tenants import UNSIGNED, WINDOW_S, Caller, Epochs, caller_of, sign

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000.0
BODY = b'{"model":"m"}'

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
salts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="@/\\\x00"),
    min_size=1,
    max_size=128,
)


def signed(tenant: str = "acme", salt: object = None, body: bytes = BODY) -> Caller:
    return caller_of(sign(SECRET, tenant, NOW, body), salt, body, SECRET, NOW)


def refusal(header: str | None, *, secret: bytes | None = SECRET, now: float = NOW) -> RequestError:
    with pytest.raises(RequestError) as caught:
        caller_of(header, None, BODY, secret, now)
    return caught.value


def test_unsigned_callers_without_a_salt_share_one_space() -> None:
    assert caller_of(None, None, BODY, SECRET, NOW) == Caller(UNSIGNED, "default")
    assert caller_of(None, None, b"other", None, NOW) == Caller(UNSIGNED, "default")


def test_an_unsigned_salt_is_a_space_for_who_names_it() -> None:
    one = caller_of(None, "s", BODY, SECRET, NOW)
    assert one == caller_of(None, "s", b"other", None, NOW)
    assert one.salt not in (caller_of(None, "t", BODY, SECRET, NOW).salt, "default")


@given(texts)
def test_a_signed_caller_is_the_tenant_that_was_signed(tenant: str) -> None:
    assert signed(tenant).tenant == tenant
    assert signed(tenant).salt == signed(tenant, body=b"another body").salt


def test_two_tenants_have_two_salts() -> None:
    assert signed("a").salt != signed("b").salt


@given(salts, salts)
def test_no_unsigned_salt_reaches_a_signed_space(named: str, inner: str) -> None:
    own = signed("acme").salt
    tried = caller_of(None, named, BODY, SECRET, NOW).salt
    assert tried not in (own, signed("acme", inner).salt, "default")


def test_an_unsigned_caller_who_knows_a_tenants_salt_gets_nowhere() -> None:
    salt = signed("acme").salt.split("/")[1]
    assert caller_of(None, salt, BODY, SECRET, NOW).salt == f"unsigned/{salt}"


@given(salts, salts)
def test_a_tenants_own_salts_divide_its_space(one: str, two: str) -> None:
    assert (signed("a", one).salt == signed("a", two).salt) == (one == two)
    assert signed("a", one).salt != signed("a").salt
    assert signed("a", one).salt != signed("b", one).salt


@pytest.mark.parametrize(
    "salt", ["", "abc/def", "a@b", "a\\b", "a\x00", "x" * 129, 5, [], "\ud800"]
)
def test_a_salt_that_vllm_refuses_is_refused(salt: object) -> None:
    for header in (None, sign(SECRET, "acme", NOW, BODY)):
        with pytest.raises(RequestError) as caught:
            caller_of(header, salt, BODY, SECRET, NOW)
        assert (caught.value.status, caught.value.field) == (400, "cache_salt")


@pytest.mark.parametrize("salt", ["a+b=", "é", "x" * 128, "a b"])
def test_other_salts_are_taken(salt: str) -> None:
    assert caller_of(None, salt, BODY, None, NOW).salt == f"unsigned/{salt}"


def test_another_body_is_refused() -> None:
    told = refusal(sign(SECRET, "acme", NOW, b"other"))
    assert (told.status, told.code) == (401, "invalid_signature")


def test_another_secret_is_refused() -> None:
    assert refusal(sign(b"x" * 32, "acme", NOW, BODY)).status == 401


def test_a_signature_without_a_secret_to_check_it_is_refused() -> None:
    assert "TRIVET_ENGINE_SECRET" in refusal(sign(SECRET, "a", NOW, BODY), secret=None).message


@pytest.mark.parametrize("age", [WINDOW_S + 1, -WINDOW_S - 1])
def test_a_signature_out_of_its_time_is_refused(age: float) -> None:
    assert "s old" in refusal(sign(SECRET, "acme", NOW, BODY), now=NOW + age).message


@pytest.mark.parametrize("age", [WINDOW_S, -WINDOW_S])
def test_a_signature_holds_to_the_end_of_its_window(age: float) -> None:
    header = sign(SECRET, "acme", NOW, BODY)
    assert caller_of(header, None, BODY, SECRET, NOW + age).tenant == "acme"


@pytest.mark.parametrize("part", range(5))
def test_no_part_of_a_signature_can_be_altered(part: int) -> None:
    parts = sign(SECRET, "acme", NOW, BODY).split(";")
    parts[part] = parts[part][:-1] + ("1" if parts[part][-1] != "1" else "2")
    assert refusal(";".join(parts)).status == 401


@given(st.text(max_size=200))
def test_whatever_the_header_holds_is_refused_cleanly(header: str) -> None:
    assert refusal(header).status == 401


def test_a_purge_gives_a_tenant_a_new_space_each_time_and_nobody_else() -> None:
    epochs = Epochs()

    def salt_of(tenant: str) -> str:
        header = sign(SECRET, tenant, NOW, BODY)
        return caller_of(header, "inner", BODY, SECRET, NOW, epochs).salt

    other = salt_of("other")
    spaces = {salt_of("acme")}
    for _ in range(3):
        epochs.purge("acme")
        spaces.add(salt_of("acme"))
    assert len(spaces) == 4
    assert salt_of("other") == other == signed("other", "inner").salt
