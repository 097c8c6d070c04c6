"""/metrics: the counters that watch and worker leave in the store, and what the store knows, as Prometheus text.

A registry of our own, so that nothing of this process's libraries leaks in. Called by `app`; reads the store once a
scrape. Rule ids may be labels; incident numbers and messages never are (contracts.md, Metrics).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from triage import __version__
from triage.store import Counter, IncidentState, Store

HELP = {
    "lines_total": "Log lines read.",
    "lag_seconds": "How far reading is behind the newest line.",
    "crashes_total": "Crashes closed, by the rule that names them.",
    "actions_total": "Actions settled.",
    "deliveries_total": "Alerts handed to a channel.",
    "rule_seconds": "Time spent matching the rules of one crash.",
}
Labels = tuple[tuple[str, str], ...]


class StoreCollector(Collector):
    """Reads the store anew for every scrape."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        health = self._store.health()
        yield from _counted(self._store.counters())
        incidents = GaugeMetricFamily(
            "triage_incidents_open", "Incidents open or regressed.", labels=("unit", "severity")
        )
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for row in self._store.open_counts():
            if row.state is not IncidentState.MITIGATED:
                sums[(row.unit, row.severity)] += row.count
        for labels, count in sorted(sums.items()):
            incidents.add_metric(labels, count)
        yield incidents
        yield GaugeMetricFamily("triage_outbox_depth", "Alerts waiting to be delivered.", value=health.outbox.waiting)
        yield GaugeMetricFamily("triage_outbox_dead", "Alerts given up.", value=health.outbox.dead)
        yield GaugeMetricFamily("triage_database_bytes", "Size of the database.", value=health.database_bytes)
        held = self._store.guarded()
        opened = int(held.breaker.opened_at is not None)
        yield GaugeMetricFamily("triage_breaker_open", "1 while nothing is applied until a person looks.", value=opened)
        yield GaugeMetricFamily("triage_demotions", "Rules that failed a proof on a unit.", value=len(held.demotions))
        build = GaugeMetricFamily("triage_build_info", "The version that serves this page.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build


def _counted(counters: Iterable[Counter]) -> Iterator[Metric]:
    """Counters of several hosts with the same labels are added up; of gauges the largest is told."""
    families: dict[str, dict[Labels, list[float]]] = defaultdict(lambda: defaultdict(list))
    for counter in counters:
        families[counter.name][counter.labels].append(counter.value)
    for name in sorted(families):
        base = name.removesuffix("_bucket")
        if name.endswith(("_sum", "_count")) and f"{name.rsplit('_', 1)[0]}_bucket" in families:
            continue  # told with its buckets
        if base != name:
            yield _histogram(base, families)
            continue
        series = families[name]
        keys = sorted({key for labels in series for key, _ in labels})
        text = HELP.get(name, name.replace("_", " "))
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"triage_{name}", text, labels=keys)
        for labels, values in sorted(series.items()):
            given = dict(labels)
            family.add_metric(
                [given.get(key, "") for key in keys], sum(values) if name.endswith("_total") else max(values)
            )
        yield family


def _histogram(base: str, families: dict[str, dict[Labels, list[float]]]) -> HistogramMetricFamily:
    """NAME_bucket with its label `le`, NAME_sum and NAME_count, put back into one family."""
    grouped: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, values in families[f"{base}_bucket"].items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        grouped[rest].append((float(dict(labels).get("le", "inf")), sum(values)))
    keys = sorted({key for labels in grouped for key, _ in labels})
    family = HistogramMetricFamily(f"triage_{base}", HELP.get(base, base.replace("_", " ")), labels=keys)
    for labels, buckets in sorted(grouped.items()):
        total = sum(families.get(f"{base}_count", {}).get(labels, [0.0]))
        ordered = sorted(buckets)
        if not ordered or ordered[-1][0] != float("inf"):
            ordered.append((float("inf"), total))
        told = [("+Inf" if edge == float("inf") else f"{edge:g}", value) for edge, value in ordered]
        given = dict(labels)
        amount = sum(families.get(f"{base}_sum", {}).get(labels, [0.0]))
        family.add_metric([given.get(key, "") for key in keys], buckets=told, sum_value=amount)
    return family


def metrics_text(store: Store) -> bytes:
    """The whole answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(store))
    return generate_latest(registry)
