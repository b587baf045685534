#!/usr/bin/env python3
"""Writes the Grafana dashboards of Weir into a folder: dashboards.py DIR (grafana/ beside this file unless given).

`dashboards.py --queries` prints every query on a line of its own, with variables replaced by what matches all."""

import json
import os
import sys

SELECT = 'instance=~"$instance"'
POOL = SELECT + ',pool=~"$pool"'
VOLUME = POOL + ',volume=~"$volume"'
OPERATIONS = "weir_operation_seconds"

READ = 'operation=~"READ|READ_PLUS"'
WRITE = 'operation="WRITE"'


def quantile(share, family, by, where):
    return f"histogram_quantile({share}, sum by (le{by}) (rate({family}_bucket{{{where}}}[$__rate_interval])))"


def latency(share, by, where):
    return quantile(share, OPERATIONS, by, where)


def rate(family, by, where):
    return f"sum by ({by}) (rate({family}{{{where}}}[$__rate_interval]))"


# Of each panel: title, unit, queries with their legends; "!" marks what only some servers have.
DASHBOARDS = {
    "overview": ("Weir: overview", ["instance"], [
        ("Conditions", "short", [(f"sum by (kind, severity) (weir_condition{{{SELECT}}})", "{{severity}} {{kind}}")], True),
        ("Data read and written", "Bps", [
            (rate("weir_operation_bytes_total", "instance", f"{SELECT},{READ}"), "read {{instance}}"),
            (rate("weir_operation_bytes_total", "instance", f"{SELECT},{WRITE}"), "written {{instance}}")]),
        ("Operations", "ops", [(rate(OPERATIONS + "_count", "protocol", SELECT), "{{protocol}}")]),
        ("Latency of 99 of 100", "s", [(latency(0.99, "", SELECT), "p99"), (latency(0.5, "", SELECT), "p50")]),
        ("Operations that fail, by status", "ops", [
            (f"topk(10, {rate('weir_operation_errors_total', 'protocol, status', SELECT)})",
             "{{protocol}} {{status}}")]),
        ("Part of the time held, by volume", "percentunit", [
            (f"topk(10, max by (volume, level, limit) (rate(weir_limit_bound_seconds_total{{{SELECT}}}[$__rate_interval])))",
             "{{volume}}: {{level}} {{limit}}")], True),
        ("Physical space", "bytes", [
            (f"weir_aggregate_used_bytes{{{SELECT}}}", "used"), (f"weir_aggregate_size_bytes{{{SELECT}}}", "size"),
            (f"weir_aggregate_provisioned_bytes{{{SELECT}}}", "promised")]),
    ]),
    "pool": ("Weir: pools", ["instance", "pool"], [
        ("Data, and the limit", "Bps", [
            (rate("weir_operation_bytes_total", "pool", POOL), "{{pool}}"),
            (f'weir_limit_bytes_per_second{{{POOL},level="pool",direction="both"}}', "limit {{pool}}")]),
        ("Part of the time in which the pool's limit held its volumes", "percentunit", [
            (f'max by (pool, limit) (rate(weir_limit_bound_seconds_total{{{POOL},level="pool"}}[$__rate_interval]))',
             "{{pool}} {{limit}}")], True),
        ("Requests that wait", "short", [(f"sum by (pool) (weir_throttle_queue_length{{{POOL}}})", "{{pool}}")]),
        ("Latency of 99 of 100", "s", [(latency(0.99, ",pool", POOL), "{{pool}}")]),
        ("Capacity", "bytes", [
            (f"weir_pool_used_bytes{{{POOL}}}", "used {{pool}}"), (f"weir_pool_size_bytes{{{POOL}}}", "size {{pool}}")]),
    ]),
    "volume": ("Weir: volumes", ["instance", "pool", "volume"], [
        ("Data, and the limit", "Bps", [
            (rate("weir_operation_bytes_total", "volume", VOLUME), "{{volume}}"),
            (f'weir_limit_bytes_per_second{{{VOLUME},level="volume",direction="both"}}', "limit {{volume}}")]),
        ("Operations", "ops", [(rate(OPERATIONS + "_count", "volume, operation", VOLUME), "{{volume}} {{operation}}")]),
        ("Latency", "s", [
            (latency(0.5, ",volume", VOLUME), "p50 {{volume}}"), (latency(0.99, ",volume", VOLUME), "p99 {{volume}}")]),
        ("Part of the time held", "percentunit", [
            (f"max by (volume, level, limit) (rate(weir_limit_bound_seconds_total{{{VOLUME}}}[$__rate_interval]))",
             "{{volume}}: {{level}} {{limit}}")], True),
        ("Time that requests waited a second, by what for", "s", [
            (rate("weir_operation_wait_seconds_total", "volume, wait", VOLUME), "{{volume}} {{wait}}")]),
        ("Requests that wait", "short", [(f"sum by (volume) (weir_throttle_queue_length{{{VOLUME}}})", "{{volume}}")]),
        ("Capacity", "bytes", [
            (f"weir_volume_used_bytes{{{VOLUME}}}", "used {{volume}}"),
            (f"weir_volume_size_bytes{{{VOLUME}}}", "size {{volume}}")]),
    ]),
    "client": ("Weir: clients", ["instance"], [
        ("Data", "Bps", [(f"topk(20, {rate('weir_client_bytes_total', 'client', SELECT)})", "{{client}}")]),
        ("Operations", "ops", [
            (f"topk(20, {rate('weir_client_operation_seconds_count', 'client', SELECT)})", "{{client}}")]),
        ("Latency of 99 of 100", "s", [
            ("histogram_quantile(0.99, sum by (le, client) (rate(weir_client_operation_seconds_bucket"
             f"{{{SELECT}}}[$__rate_interval])))", "{{client}}")]),
        ("Requests that limits hold", "short", [
            (f"topk(20, sum by (client, volume) (weir_client_throttled_queue_length{{{SELECT}}}))",
             "{{client}} at {{volume}}")]),
    ]),
    "replication": ("Weir: replication", ["instance"], [
        ("Age of the newest copy", "s", [(f"weir_snapmirror_lag_seconds{{{SELECT}}}", "{{destination}}")], True),
        ("On the wire", "Bps", [(f"weir_snapmirror_rate_bytes_per_second{{{SELECT}}}", "{{destination}}")], True),
        ("Healthy", "bool", [(f"weir_snapmirror_healthy{{{SELECT}}}", "{{destination}}")], True),
    ]),
    "pair": ("Weir: pair", ["instance"], [
        ("In sync", "bool", [(f"weir_pair_in_sync{{{SELECT}}}", "{{instance}}")], True),
        ("Changes not acknowledged", "bytes", [(f"weir_pair_lag_bytes{{{SELECT}}}", "{{instance}}")], True),
        ("Cost of the mirror", "s", [
            (f"weir_pair_cost_mean_seconds{{{SELECT}}}", "mean"), (f"weir_pair_cost_p99_seconds{{{SELECT}}}", "p99")], True),
        ("Sent", "Bps", [(rate("weir_pair_sent_bytes_total", "instance", SELECT), "{{instance}}")], True),
    ]),
    "server": ("Weir: server", ["instance"], [
        ("Processor time a second", "s", [(rate("process_cpu_seconds_total", "instance", SELECT), "{{instance}}")]),
        ("Memory", "bytes", [
            (f"process_resident_memory_bytes{{{SELECT}}}", "resident"), (f"weir_held_bytes{{{SELECT}}}", "waiting requests"),
            (f"weir_lock_bytes{{{SELECT}}}", "locks")]),
        ("Hits of the cache", "percentunit", [
            (f'sum by (instance) (rate(weir_cache_lookups_total{{{SELECT},result="hit"}}[$__rate_interval])) / '
             f"sum by (instance) (rate(weir_cache_lookups_total{{{SELECT}}}[$__rate_interval]))", "{{instance}}")]),
        ("Time that requests waited a second, by what for", "s", [
            (rate("weir_operation_wait_seconds_total", "wait", SELECT), "{{wait}}")]),
        ("A write of the intent log", "s", [
            (quantile(0.5, "weir_log_write_seconds", "", SELECT), "p50"),
            (quantile(0.99, "weir_log_write_seconds", "", SELECT), "p99")]),
        ("Operations of the device: 99 of 100 take less", "s", [
            (quantile(0.99, "weir_device_operation_seconds", ",operation", SELECT), "{{operation}}")]),
        ("Operations of the device", "ops", [
            (rate("weir_device_operation_seconds_count", "operation", SELECT), "{{operation}}")]),
        ("Operations that fail", "ops", [
            (f"topk(20, {rate('weir_operation_errors_total', 'protocol, operation, status', SELECT)})",
             "{{protocol}} {{operation}}: {{status}}")]),
        ("Blocks that are not what was written", "short", [
            (f"weir_damaged_blocks{{{SELECT}}}", "not cleared by a scrub"),
            (f"sum by (reader) (weir_checksum_errors_total{{{SELECT}}})", "met by {{reader}}")]),
        ("Read by scrubs", "Bps", [(rate("weir_scrub_read_bytes_total", "instance", SELECT), "{{instance}}")]),
        ("Connections", "short", [(f"weir_connections{{{SELECT}}}", "{{protocol}}")]),
        ("Requests of the API", "reqps", [(rate("weir_http_requests_total", "code", SELECT), "{{code}}")]),
        ("Until a certificate ends", "s", [
            (f"weir_certificate_not_after_seconds{{{SELECT}}} - time()", "{{use}}")], True),
        ("Clients of NFSv4", "short", [(f"weir_nfs4_clients{{{SELECT}}}", "{{state}}")]),
        ("Up since", "dateTimeAsIso", [(f"process_start_time_seconds{{{SELECT}}} * 1000", "{{instance}}")]),
    ]),
}
LABELS = {"instance": "weir_build_info", "pool": "weir_pool_size_bytes", "volume": "weir_volume_size_bytes"}


def dashboard(name, title, variables, panels):
    shown = []
    for at, (heading, unit, queries, *_) in enumerate(panels):
        shown.append({
            "id": at + 1, "type": "timeseries", "title": heading,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at // 2)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": chr(65 + n), "expr": query, "legendFormat": legend}
                        for n, (query, legend) in enumerate(queries)],
        })
    chosen = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
    for label in variables:
        chosen.append({
            "name": label, "type": "query", "label": label, "includeAll": True, "multi": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}, "refresh": 2,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": f"label_values({LABELS[label]}, {label})", "refId": label},
        })
    return {
        "uid": f"weir-{name}", "title": title, "tags": ["weir"], "schemaVersion": 39, "version": 1, "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "templating": {"list": chosen}, "panels": shown,
        "links": [{"type": "dashboards", "tags": ["weir"], "title": "Weir", "asDropdown": True, "keepTime": True}],
    }


def plain(query):
    """A query without variables, as Prometheus takes it."""
    for variable in LABELS:
        query = query.replace(f"${variable}", ".*")
    return query.replace("$__rate_interval", "1m")


def main():
    if sys.argv[1:] == ["--queries"]:
        for name, (_, _, panels) in DASHBOARDS.items():
            for heading, _, queries, *some in panels:
                for query, _ in queries:
                    print("some" if some else "all", f"{name}: {heading}", plain(query), sep="\t")
        return
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "grafana")
    os.makedirs(folder, exist_ok=True)
    for name, (title, variables, panels) in DASHBOARDS.items():
        with open(os.path.join(folder, f"weir-{name}.json"), "w") as file:
            json.dump(dashboard(name, title, variables, panels), file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
