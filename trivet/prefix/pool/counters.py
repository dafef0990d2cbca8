"""What the block cache counts for each tenant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TenantCounters:
    """Running totals. A request counts when it is admitted: refusals and retries add no tokens."""

    requests: int = 0
    queries: int = 0
    """Prompt tokens that were looked up."""
    hits: int = 0
    """Prompt tokens whose KV was there, in any tier."""
    offload_hits: int = 0
    """Those of `hits` that came back from the second tier."""
    preempted_requests: int = 0
    """Admissions of requests that were preempted before: kept out of the three above, because
    their own blocks of a moment ago are no saving."""
    preempted_queries: int = 0
    preempted_hits: int = 0
    preemptions: int = 0
    refusals: int = 0
    """Admissions and appends that found too few blocks."""
    evictions: int = 0
    """Blocks of this tenant that were given to another use."""

    def admitted(self, queries: int, hits: int, offload_hits: int, *, resumed: bool) -> None:
        """Count one admission, in tokens."""
        if resumed:
            self.preempted_requests += 1
            self.preempted_queries += queries
            self.preempted_hits += hits
        else:
            self.requests += 1
            self.queries += queries
            self.hits += hits
            self.offload_hits += offload_hits
