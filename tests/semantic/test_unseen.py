"""Texts that a calibration says nothing about."""

from __future__ import annotations

import pytest
from parts import calibration, intention, neighbour, policy
from parts import standing as made_standing

from trivet.semantic.decide import decide
from trivet.semantic.language import language_of
from trivet.semantic.types import Verdict
from trivet.semantic.unseen import REASONS, unseen

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How do I reset the router?", "en"),
        ("Wie kann ich mein Passwort ändern?", "de"),
        ("Comment puis-je changer mon mot de passe ?", "fr"),
        ("¿Cómo puedo cambiar mi contraseña?", "es"),
        ("Как мне изменить пароль и где это?", "ru"),
        ("reset password", ""),
        ("", ""),
        ("12 + 3", ""),
        ("パスワードを変更するには", ""),
    ],
)
def test_function_words_tell_a_language_or_nothing_does(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("text", "scripts", "reason"),
    [
        ("How do I reset it?", ("latin",), ""),
        ("Как сбросить?", ("latin",), "script-unseen"),
        ("Как сбросить?", ("cyrillic", "latin"), ""),
        ("What does привет mean?", ("latin",), ""),
        ("перевод слова cat", ("latin",), "script-unseen"),
        ("ab вг", ("latin",), "script-unseen"),
        ("12 + 3 🙂", ("latin",), ""),
        ("", ("latin",), ""),
        ("How do I reset it?", (), "script-unseen"),
    ],
)
def test_a_text_mostly_in_a_script_without_pairs_is_unseen(
    text: str, scripts: tuple[str, ...], reason: str
) -> None:
    assert unseen(text, calibration(scripts=scripts)) == reason


@pytest.mark.parametrize(
    ("text", "languages", "reason"),
    [
        ("Wie kann ich das ändern?", (), ""),
        ("Wie kann ich das ändern?", ("en",), "language-unseen"),
        ("Wie kann ich das ändern?", ("de", "en"), ""),
        ("reset password", ("de",), ""),
    ],
)
def test_a_text_clearly_in_a_language_without_pairs_is_unseen(
    text: str, languages: tuple[str, ...], reason: str
) -> None:
    assert unseen(text, calibration(languages=languages)) == reason


def test_what_was_not_calibrated_bounds_nothing() -> None:
    assert unseen("Как сбросить?", None) == ""
    assert unseen("Как сбросить?", calibration(None)) == ""


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_what_is_unseen_is_a_miss_however_near(reason: str) -> None:
    where = made_standing()
    found = neighbour(), Verdict(1.0)
    assert decide(intention(), found, where, policy(), NOW).kind == "hit"
    strange = type(where)(where.fingerprint, where.calibration, unseen=reason)
    decision = decide(intention(), found, strange, policy(), NOW)
    assert (decision.kind, decision.reason) == ("miss", reason)
