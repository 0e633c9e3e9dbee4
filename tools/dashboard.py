"""``python -m tools.dashboard``: write the Grafana dashboard over the metrics of /metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs

FILE: Final = Path(__file__).parents[1] / "docs" / "grafana-dashboard.json"

_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_CHOSEN: Final = 'instance=~"$instance"'
_RESOURCE: Final = f'{_CHOSEN}, resource_name=~"$resource"'


@attrs.frozen
class _Panel:
    title: str
    about: str
    lines: tuple[tuple[str, str], ...]
    """PromQL, and how a line is called."""
    unit: str = "short"


def _rate(name: str, chosen: str = _CHOSEN) -> str:
    return f"rate({name}{{{chosen}}}[$__rate_interval])"


def _quantile(share: float, name: str, by: str, chosen: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}) ({_rate(name + '_bucket', chosen)}))"


_ALLOCATE: Final = "kubelet_device_plugin_alloc_duration_seconds"
_TOPOLOGY: Final = "kubelet_topology_manager_admission"
_LISTING: Final = "kubelet_pod_resources_endpoint"
_ALIGNED: Final = "kubelet_container_aligned_compute_resources"

_PANELS: Final = (
    _Panel(
        "Devices",
        "Held by containers, healthy, and listed by plugins.",
        tuple(
            (f"devicemanager_devices_{each}{{{_RESOURCE}}}", f"{{{{resource_name}}}} {each}")
            for each in ("held", "allocatable", "capacity")
        ),
    ),
    _Panel(
        "Unhealthy devices",
        "Listed by a plugin, but not healthy; all of them once the plugin has gone.",
        (
            (
                f"devicemanager_devices_capacity{{{_RESOURCE}}}"
                f" - devicemanager_devices_allocatable{{{_RESOURCE}}}",
                "{{resource_name}}",
            ),
        ),
    ),
    _Panel(
        "Registrations",
        "Calls of Register since the kubelet started, rejected ones included.",
        ((f"kubelet_device_plugin_registration_total{{{_RESOURCE}}}", "{{resource_name}}"),),
    ),
    _Panel(
        "Allocate",
        "How long plugins take to answer.",
        tuple(
            (
                _quantile(share, _ALLOCATE, "le, resource_name", _RESOURCE),
                f"{{{{resource_name}}}} {name}",
            )
            for share, name in ((0.5, "median"), (0.99, "99 %"))
        ),
        "s",
    ),
    _Panel(
        "Admissions",
        "Pods that came to the topology manager, and that were rejected, a second.",
        (
            (_rate(f"{_TOPOLOGY}_requests_total"), "all"),
            (_rate("kubelet_admission_rejections_total"), "{{reason}}"),
        ),
        "ops",
    ),
    _Panel(
        "Admission time",
        "What the topology manager takes, with the plugins' answers.",
        tuple(
            (_quantile(share, f"{_TOPOLOGY}_duration_ms", "le", _CHOSEN), name)
            for share, name in ((0.5, "median"), (0.99, "99 %"))
        ),
        "ms",
    ),
    _Panel(
        "Alignment",
        "Containers or pods on one NUMA node, and that could not be (policy single-numa-node).",
        (
            (f"{_ALIGNED}_count{{{_CHOSEN}}}", "{{scope}} aligned"),
            (f"{_ALIGNED}_failure_count{{{_CHOSEN}}}", "{{scope}} rejected"),
            (f"{_TOPOLOGY}_errors_total{{{_CHOSEN}}}", "errors"),
        ),
    ),
    _Panel(
        "PodResources",
        "Calls a second.",
        (
            (_rate(f"{_LISTING}_requests_total"), "{{server_api_version}}"),
            (_rate(f"{_LISTING}_errors_list"), "{{server_api_version}} errors of List"),
        ),
        "reqps",
    ),
    _Panel(
        "Pods and containers",
        "What is on the node.",
        (
            (f"kubelet_running_pods{{{_CHOSEN}}}", "pods"),
            (f"kubelet_running_containers{{{_CHOSEN}}}", "containers {{container_state}}"),
        ),
    ),
)


def text() -> str:
    """The dashboard, as Grafana imports it."""
    dashboard = {
        "title": "Device manager",
        "uid": "devicemanager",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("instance", "label_values(kubelet_node_name, instance)"),
                _variable(
                    "resource", "label_values(devicemanager_devices_capacity, resource_name)"
                ),
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(_PANELS)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _source(),
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
    }


def _panel(number: int, panel: _Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _source(),
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": name}
            for at, (expression, name) in enumerate(panel.lines)
        ],
    }


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"wrote {FILE.name}")
