"""The console's views by the page that shows them."""

from __future__ import annotations

from typing import Final

from trivet.middleware.console.pages import View
from trivet.middleware.console.views import explain, overview, prefix, semantic, tenants

SHOWN: Final[dict[str, View]] = {
    "explain": explain.show,
    "explain/one": explain.show_one,
    "overview": overview.show,
    "prefix": prefix.show,
    "prefix/replicas": prefix.show_replicas,
    "prefix/route": prefix.show_route,
    "semantic": semantic.show,
    "semantic/rows": semantic.show_rows,
    "semantic/tenant": semantic.show_tenant,
    "tenants": tenants.show,
    "tenants/one": tenants.show_one,
}
"""GET `/trivet/ui/api/<page>`."""
TAKEN: Final[dict[str, View]] = {
    "explain": explain.take_request,
    "semantic/verdict": semantic.take_verdict,
    "tenants/check": tenants.take_policy,
}
"""POST `/trivet/ui/api/<page>`."""
