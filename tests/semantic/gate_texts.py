"""Texts of the gate's tests, by what they are; none is in what the gate was trained on."""

from __future__ import annotations

COMMANDS = (
    "cancel my booking for friday night",
    "refund the jacket i bought",
    "reset my password",
    "please turn the radiator off in the attic",
    "can you forward this invoice to the accountant",
    "book two seats on the late ferry to bergen",
    "play the second movement again",
    "remind me to feed the parrot at noon",
    "how do i subscribe to your newsletter",
    "where can i leave a review of the shop",
    "i want to return the toaster and get my money back",
    "add oat milk to the shopping list",
    "deploy the billing service to staging",
)
RECORDS = (
    "what is the balance of my savings",
    "where is my parcel",
    "has my refund been approved yet",
    "how many days of leave do i still have",
    "when does my passport expire",
    "show me my last ten transactions",
    "what is on my calendar for thursday",
    "why was my card declined at the bakery",
    "track order 8841207",
    "am i allowed to see the payroll folder",
    "do i have access to the audit log",
)
TIMELY = (
    "opening hours today",
    "what is the weather in tromso",
    "who is the prime minister of denmark",
    "what is the latest version of node",
    "is the payment api down",
    "who has won the most snooker titles",
    "how much does bitcoin cost",
    "when is the next train to ghent",
    "what is the exchange rate between euros and yen",
    "how old is the mayor of vilnius",
    "what is the population of bolivia",
    "which city has the tallest building in africa",
)
STATES = (
    "which painkiller is safe for me",
    "i weigh 61 kg, how much paracetamol is fine",
    "can i drink milk with what i have",
    "is it fine for a celiac like me to eat oats",
    "which of the pills i take makes one sleepy",
    "do i need a visa for kenya",
    "i'm pregnant, is sushi safe",
    "i am allergic to nuts. what is marzipan made of?",
    "am i eligible for a heating grant",
    "is it ok to run with my asthma",
    "i have a cold, what helps?",
    "i'm 70 years old, how much sleep is normal?",
    "do i qualify for a discount",
    "am i covered if the boat sinks",
    "i was diagnosed with gout, can one eat beans?",
    "what diet suits me",
    "we are vegan, what can we eat",
    "my son is 4, how much syrup is safe",
    "should i take aspirin",
    "are we allowed to park by the fountain",
    "is the archive accessible for trainees",
    "can contractors open the server room",
)
ASKED = (
    "How do I export a report to csv",
    "How does a magnet work",
    "What is a backup and how is it made",
    "Why do leaves turn red in autumn",
    "What does photosynthesis produce",
    "Do you ship to Iceland",
    "Who wrote the opera Carmen",
    "What is the difference between a virus and a bacterium",
)
JOINERS = (
    "? ", "?", ". ", "! ", "; ", "\n", "... ", ", ", ": ", " - ", " (", "/", " -> ", " | ",
    " \U0001f642 ", " then ", ", then ", " and then ", " also ", " and also ", " please ",
    " and please ", " and ", " plus ", " once done ", "? Once you are done, ", "? After that ",
    "? Now ", "? Next, ", "? Can you ", "? I want you to ", "? You must ", "? Yes. ",
    "? While you are at it, ",
)  # fmt: skip
ORDERS = (
    "pay bob 50 dollars",
    "delete the backup",
    "set it to 70",
    "turn off the lamp in the shed",
    "send anna the contract",
    "cancel my plan",
    "restart the server please",
    "wipe the disk",
    "give kim 20 dollars",
    "call my mother",
    "grant kim admin rights",
    "lock the front door",
)
REMARKS = (
    "bob should get 50 dollars",
    "the backup must be deleted",
    "I want the backup gone",
    "bump my quota",
    "lights off",
    "need a table for two",
)
BEFORE = ("I am new here. ", "Hello there! ", "Thanks. ", "I have a question. ")
BEHIND = (" Please explain it briefly.", " I am curious.", " And why?", " Thanks!")
INFORMATIONAL = (
    "how do i reset a forgotten pin",
    "how can i set a new door code",
    "what are the shop's usual opening times",
    "what is the policy on returns",
    "does the premium plan include phone support",
    "how do i export a report to csv",
    "why do leaves turn red in autumn",
    "who wrote the opera carmen",
    "what does photosynthesis produce",
    "how do you spell rhythm in english",
    "how many ounces are in a pound",
    "when did the berlin wall fall",
    "what is the difference between a virus and a bacterium",
    "do you ship to iceland",
    "how long does delivery by post take",
    "how do i rename a branch in git",
)
LEANING = ("yes", "and the second one?", "what about that", "why not", "tell me more")
MADE_UP = (
    "write a poem about my bicycle",
    "tell me a joke about cheese",
    "give me five names for a bakery",
)
ABROAD = (
    "wie lange dauert der versand",
    "¿cuál es la política de reembolso?",
    "comment puis-je changer mon mot de passe",
    "как сбросить пароль",
    "如何重置密码",
    "איך מאפסים סיסמה",
)
