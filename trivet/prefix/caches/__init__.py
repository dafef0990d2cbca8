"""Models of the providers' prefix caches, as they document them: what a request reads and writes.

No clock and no I/O: the caller says when a request starts. They stand behind `trivet upstream
--as ...`, behind `trivet prefix plan` and `report`, and in the benchmarks.
"""

from trivet.prefix.caches.base import Billed, CacheModel, Refused
from trivet.prefix.caches.registry import PROVIDERS, make_cache

__all__ = ["PROVIDERS", "Billed", "CacheModel", "Refused", "make_cache"]
