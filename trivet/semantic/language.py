"""Which language a text is in, by its function words. Says so only where they speak clearly."""

from __future__ import annotations

import re
from collections import Counter

_LETTERS = re.compile(r"[^\W\d_]+")
_LEAST = 2
"""Function words that it takes: one is too often a name or a loan word."""
_WORDS = {
    "en": """the of and to in is are was were do does did how what which who why when where can
        could should would will my your our their with for from this that these those it not have
        has an there be been or if i you we they""",
    "de": """der die das den dem des ein eine einen einem einer und ist sind war wie was warum wann
        wo wer welche welcher kann können soll muss mein meine mit für von nicht ich du wir ihr sie
        auf zu im es wird werden haben hat zum zur bei""",
    "fr": """le la les des une est sont était et comment quel quelle quels pourquoi quand où qui que
        peut puis dois mon ma mes votre vos avec pour dans sur pas je vous nous il elle ce cette du
        au aux sans""",
    "es": """el la los las una unos es son está están y cómo qué cuál cuándo dónde quién por para
        puedo puede debo mi mis su con sin del al no yo nosotros se un hay desde""",
    "it": """il lo gli le una è sono era come che quale quando dove chi perché posso può devo mio
        mia della delle degli con per non io noi nel nella di si un dal""",
    "pt": """os uma um é são está como qual quando onde quem por para posso pode devo meu minha seu
        com sem do da dos das não eu nós no na ao se""",
    "nl": """het een zijn is was hoe wat waarom wanneer waar wie welke kan kunnen moet mijn onze met
        voor van niet ik je wij op te dat de en er""",
    "pl": """jak co dlaczego kiedy gdzie kto który czy jest są był mogę może muszę mój moje z dla do
        na nie ja się w i od to""",
    "sv": """ett är var hur vad varför när vem vilken kan måste min mitt mina med för av inte jag vi
        på till det och att som en den""",
    "tr": """bir bu ve nasıl ne neden nerede kim hangi için ile benim değil mi mı var yok olarak
        kadar""",
    "id": """apa bagaimana kapan di mana siapa kenapa saya anda kami yang dan untuk dengan dari
        tidak bisa ini itu ke ada""",
    "ru": """как что где когда почему кто какой какая можно могу нужно мой моя мне с для из не я мы
        вы на в и это ли у""",
}
_LANGUAGES: dict[str, list[str]] = {}
for _language, _listed in _WORDS.items():
    for _word in _listed.split():
        _LANGUAGES.setdefault(_word, []).append(_language)


def language_of(text: str) -> str:
    """ISO 639-1, or empty where it cannot be told: too few function words, a tie, or a language
    that has no list here."""
    words = _LETTERS.findall(text.lower())
    counts = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    (best, most), (_, next_most) = (*counts.most_common(2), ("", 0), ("", 0))[:2]
    return best if most >= _LEAST and most > next_most else ""
