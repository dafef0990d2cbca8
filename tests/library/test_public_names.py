"""What `from trivet import ...` gives, and what `import trivet` costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import trivet


def test_every_public_name_is_there() -> None:
    assert sorted(trivet.__all__) == trivet.__all__
    assert len(trivet.__all__) <= 15
    for name in trivet.__all__:
        assert getattr(trivet, name).__name__ == name
    assert set(trivet.__all__) <= set(dir(trivet))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nosuch"):
        _ = trivet.nosuch


def test_nothing_heavy_is_imported_before_it_is_named() -> None:
    heavy = ["asyncio", "httpx2", "pydantic", "fastapi", "torch", "numpy", "openai", "uvicorn"]
    script = f"import sys, trivet; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_the_middleware_needs_no_client_library_and_no_framework() -> None:
    heavy = ["httpx2", "httpx", "fastapi", "starlette", "torch", "numpy", "openai"]
    script = (
        "import sys; from trivet import TrivetMiddleware; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_transport_without_httpx2_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['httpx2'] = None\n"
        "try:\n    from trivet import TrivetTransport\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "the transport needs httpx2: pip install 'trivet[library]'\n"
