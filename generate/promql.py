"""Queries over Trivet's metrics: a label that a metric does not have is an error when written."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.metric_names import Metric


def selected(metric: Metric, **labels: str) -> str:
    """`name{label="value"}`; a value that begins with `~` is a regular expression.

    Raises `ValueError` for a label that the metric does not have.
    """
    _known(metric, labels)
    return metric.name + _matchers(labels)


def rate(
    metric: Metric,
    by: Sequence[str],
    window: str = "$__rate_interval",
    offset: str = "",
    **labels: str,
) -> str:
    """`sum by (...) (rate(...))`; of a histogram its buckets if `by` has `le`, else its count."""
    return _over("rate", metric, by, f"[{window}]{_offset(offset)}", labels)


def increase(metric: Metric, by: Sequence[str], window: str, **labels: str) -> str:
    """`sum by (...) (increase(...))`."""
    return _over("increase", metric, by, f"[{window}]", labels)


def grew(metric: Metric, by: Sequence[str], window: str, over: int, **labels: str) -> str:
    """Whether a counter grew by more than `over` within `window`.

    A series that begins counts from nothing: `increase` sees no growth in its first value.
    """
    _known(metric, [*labels, *by])
    name, grouped = metric.name + _matchers(labels), f" by ({', '.join(by)})" if by else ""
    new = f"sum{grouped} ({name}) unless sum{grouped} ({name} offset {window})"
    return f"{increase(metric, by, window, **labels)} > {over} or ({new}) > {over}"


def _over(
    function: str, metric: Metric, by: Sequence[str], window: str, labels: dict[str, str]
) -> str:
    _known(metric, labels)
    _known(metric, [name for name in by if name != "le"])
    suffix = ("_bucket" if "le" in by else "_count") if metric.kind == "histogram" else ""
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} ({function}({metric.name}{suffix}{_matchers(labels)}{window}))"


def _known(metric: Metric, labels: Sequence[str] | dict[str, str]) -> None:
    unknown = sorted(set(labels) - set(metric.labels))
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(unknown)}")


def _matchers(labels: dict[str, str]) -> str:
    told = [
        f'{name}=~"{value[1:]}"' if value.startswith("~") else f'{name}="{value}"'
        for name, value in labels.items()
    ]
    return f"{{{','.join(told)}}}" if told else ""


def _offset(offset: str) -> str:
    return f" offset {offset}" if offset else ""
