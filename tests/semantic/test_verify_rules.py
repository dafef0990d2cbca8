from __future__ import annotations

import pytest

from trivet.semantic.features import analyse
from trivet.semantic.types import TextPair
from trivet.semantic.verify import RuleVerifier, objections_to
from trivet.semantic.verify_numbers import Quantity, quantities
from trivet.semantic.verify_rules import Differences
from trivet.semantic.verify_text import read, strip_fillers, tokens


def differences(a: str, b: str) -> Differences:
    return analyse(TextPair(a, b, 0.9)).differences


def objections(a: str, b: str) -> tuple[str, ...]:
    return objections_to(analyse(TextPair(a, b, 0.9)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("wait 14 days", "wait two weeks"),
        ("wait a fortnight after 1 fortnight", "wait 14 days"),
        ("at 7am", "at seven in the morning"),
        ("at noon", "at 12 pm"),
        ("for 6 months", "for half a year"),
        ("£5", "5 pounds"),
        ("twenty five users", "25 users"),
        ("3.5 kg", "3500 g"),
        ("10k users", "10,000 users"),
        ("the 3rd of june", "third june"),
    ],
)
def test_one_value_in_two_notations_is_one_quantity(one: str, other: str) -> None:
    a, b = set(quantities(tokens(one))[0]), set(quantities(tokens(other))[0])
    assert b <= a | {Quantity(0.5, ""), Quantity(12.0, "month")} or a == b


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Can I swap it after 14 days?", "Can I swap it after 40 days?"),
        ("a fine of £5", "a fine of 5 dollars"),
        ("meet on tuesday", "meet on thursday"),
        ("a tour in march", "a tour in april"),
        ("wake me at 6am", "wake me at 6pm"),
        ("a 2 hour class", "a 2 day class"),
    ],
)
def test_other_numbers_units_and_dates_are_a_conflict(one: str, other: str) -> None:
    assert differences(one, other).number_conflict == 1
    assert objections(one, other)[0] == "number"


def test_a_number_without_its_unit_is_no_conflict() -> None:
    assert (
        differences("sell knives at 18", "sell knives to 18-year-old people").number_conflict == 0
    )


def test_a_number_on_one_side_only_narrows_the_scope() -> None:
    found = differences("Is parking free?", "Is parking free after 8 pm?")
    assert (found.number_conflict, found.number_extra) == (0, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Which rooms have a view?", "Which rooms don't have a view?"),
        ("Is it safe to mix bleach?", "Is it unsafe to mix bleach?"),
        ("Can I bring my own food?", "Can't I bring my own food?"),
        ("How do I import a file?", "How do I export a file?"),
        ("The soup was careful", "The soup was careless"),
        ("That is a certain sign", "That is an uncertain sign"),
    ],
)
def test_one_negation_or_opposite_is_odd(one: str, other: str) -> None:
    assert differences(one, other).odd_polarity
    assert {"negation", "antonym"} & set(objections(one, other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The climb is easy", "The climb is not uneasy"),
        ("My uncle is not honest", "My uncle is dishonest"),
        ("The trip is possible", "The trip is not impossible"),
    ],
)
def test_a_negated_opposite_is_even(one: str, other: str) -> None:
    assert not differences(one, other).odd_polarity


def test_a_tag_question_negates_nothing() -> None:
    assert read("The shop is shut, isn't it?").negations == 0


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ("a bus from Ghent to Turin", "a bus from Turin to Ghent", "order"),
        ("cancel my lesson", "can i cancel my lesson", "act"),
        ("Who runs the Leiden office?", "When was the Leiden office opened?", "question"),
        ("Where do I pay my fine?", "Where do I pay my sister's fine?", "possessor"),
        ("Can all guests swim?", "Can some guests swim?", "quantifier"),
        ("Which desk is the largest?", "Which desk is the tidiest?", "comparative"),
        ("Do dentists work here?", "Do only dentists work here?", "scope"),
        ("Do you ship to Oslo by Postnord?", "Do you ship to Oslo by Fedex?", "entity"),
        ("Who can tune my violin?", "Who can tune my cello?", "entity"),
    ],
)
def test_each_rule_names_what_differs(one: str, other: str, name: str) -> None:
    assert name in objections(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I oil a hinge?", "how do i oil a hinge"),
        ("How do I oil a hinge?", "HOW DO I OIL A HINGE??"),
        ("How do I oil a hinge?", "Hi, how do I oil a hinge please"),
        ("How do I oil a hinge?", "Could you tell me how do I oil a hinge? Thanks"),
        ("What's the guest wi-fi code?", "What is the guest wifi code?"),
        ("Where do I log in to the portal?", "Where do I login to the portal?"),
        ("What colour is the catalogue?", "What color is the catalog?"),
        ("Where is the laundry?", "Where is the laundyr?"),
    ],
)
def test_repeats_of_a_question_meet_no_objection(one: str, other: str) -> None:
    assert objections(one, other) == ()


def test_politeness_is_stripped_but_never_everything() -> None:
    assert strip_fillers(tokens("Hi there, can you tell me where it is? Thanks")) == [
        "where",
        "it",
        "is",
    ]
    assert strip_fillers(["hello"]) == ["hello"]


def test_a_known_word_is_never_taken_for_a_slip_of_another() -> None:
    links = analyse(TextPair("fly to Australia", "fly to Austria", 1.0)).alignment.links
    assert "typo" not in {link.how for link in links}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("how do i knit", "how-to"),
        ("What is the best way to knit?", "how-to"),
        ("how much is a scarf", "how-much"),
        ("how many days does knitting take", "how-long"),
        ("how many scarves fit", "how-many"),
        ("At what time do you knit?", "when"),
        ("who knits here", "who"),
        ("can i knit here?", "yes-no"),
        ("cancel my knitting class", "command"),
        ("could you cancel my knitting class?", "command"),
        ("knitting patterns", "fragment"),
        ("", "fragment"),
    ],
)
def test_the_kind_of_question_is_read_from_its_words(text: str, kind: str) -> None:
    assert read(text).kind == kind


def test_the_rules_give_the_cosine_and_the_gravest_objection() -> None:
    verdict = RuleVerifier().verify([TextPair("rent for 3 days", "rent for 9 days", 0.97)])[0]
    assert (verdict.score, verdict.veto) == (0.97, "number")
