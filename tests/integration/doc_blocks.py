"""The code blocks of a documentation page, and a page's blocks as one script that runs them.

A comment right before a block says what a reader need not see:

    <!-- not run: REASON -->   it is not run, and why
    <!-- file: NAME -->        it is the content of this file
    <!-- exits N -->           it ends with this exit code

A YAML block that begins with `# NAME.yaml` is the content of that file. Blocks of the language
`text` are output. Servers (`trivet serve`, `trivet upstream`) have blocks of their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
RUN = {
    "README.md",
    "quick-start.md",
    "guide-platform.md",
    "guide-threshold.md",
    "guide-tenant.md",
    "guide.md",
    "operations.md",
}
"""The pages each of whose blocks is run, or says why it is not."""
_MARK = re.compile(r"<!-- (not run|file|exits):? (.+?) -->")
_FILE = re.compile(r"# ([\w./-]+\.ya?ml)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """One block, with what its mark says, if anything."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    told: str = ""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str:
        """The file that it is the content of, if any."""
        named = _FILE.match(self.text) if self.language == "yaml" else None
        return self.told if self.mark == "file" else named[1] if named else ""


def blocks(page: Path) -> Iterator[Block]:
    """Fenced and indented blocks in their order. Indented ones have no language."""
    mark = told = ""
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type in ("fence", "code_block"):
            line = (token.map or [0])[0] + 1
            yield Block(page, line, token.info.strip(), token.content, mark, told)
        found = _MARK.fullmatch(token.content.strip()) if token.type == "html_block" else None
        mark, told = (found[1], found[2]) if found else ("", "")


@dataclass(frozen=True, slots=True)
class Place:
    """What stands in for the names in a page: ports, an app's key with its hash, another's hash."""

    proxy: int
    upstream: int
    key: str
    key_sha256: str
    other_sha256: str

    def put_into(self, text: str) -> str:
        """The text with these in place of the page's."""
        for told, real in (
            ("8080", str(self.proxy)),
            ("8081", str(self.proxy + 1)),
            ("localhost", "127.0.0.1"),
            ("9000", str(self.upstream)),
            # A disk that others use is slower than the budget for a stored answer, at times.
            ("  url: sqlite:cache.sqlite\n", "  url: sqlite:cache.sqlite\n  budget: 5\n"),
        ):
            text = text.replace(told, real)
        text = text.replace("PUT-THE-SHA256-OF-trivet-keygen-HERE", self.key_sha256)
        return re.sub(r"PUT-THE-SHA256-OF-[\w-]+-HERE", self.other_sha256, text)


_HEAD = """
set -euo pipefail
servers=()
end() { ((${#servers[@]})) && kill "${servers[@]}" && wait || true; } 2>/dev/null
trap end EXIT
up() {  # up URL: until the server that was started last answers there
  for try in $(seq 600); do
    curl -s -o /dev/null "$1" && return
    kill -0 "${servers[-1]}" || return 1
    sleep 0.05
  done
  return 1
}
"""


def script(page: Path, place: Place) -> str:
    """A bash script that runs the page from its first block to its last."""
    run = [block for block in blocks(page) if block.mark != "not run"]
    parts = [f"echo '== {block.place}' >&2\n{_run(block, place)}" for block in run]
    return "\n".join([_HEAD, *parts])


def _run(block: Block, place: Place) -> str:
    text = place.put_into(block.text)
    if block.file:
        name = shlex.quote(block.file)
        return f"mkdir -p \"$(dirname {name})\"\ncat > {name} <<'END-OF-FILE'\n{text}END-OF-FILE\n"
    if block.language == "python":
        return f"python - <<'END-OF-CODE'\n{text}END-OF-CODE\n"
    if block.language != "sh":
        return ":\n"
    if text.startswith("trivet serve"):
        return _server(text, f"http://127.0.0.1:{place.proxy + 1}/readyz")
    if text.startswith("trivet upstream"):
        return _server(text, f"http://127.0.0.1:{place.upstream}/")
    if block.mark == "exits":
        return f"code=0\n(\n{text}) || code=$?\n[ $code = {int(block.told)} ]\n"
    return text


def _server(command: str, url: str) -> str:
    return f"{command.strip()} >&2 &\nservers+=($!)\nup {url}\n"
