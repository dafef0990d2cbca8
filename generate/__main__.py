"""`python -m generate [--check]`: write the files, or name those that are not current."""

from __future__ import annotations

import sys
from pathlib import Path

from generate.files import FILES, ROOT


def main() -> int:
    """Exit code: 1 where `--check` finds a file that is not current."""
    stale = [name for name, text in FILES.items() if _read(ROOT / name) != text()]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is not current: python -m generate")
        return bool(stale)
    for name in stale:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(FILES[name](), "utf-8")
        print(f"wrote {name}")
    return 0


def _read(file: Path) -> str | None:
    return file.read_text("utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main())
