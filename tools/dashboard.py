"""``python -m tools.dashboard``: write the Grafana dashboard for the metrics of /metrics."""

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
    """PromQL expression and legend of each line in the panel."""
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
        "Allocated to containers, healthy, and advertised by plugins.",
        tuple(
            (f"devicemanager_devices_{each}{{{_RESOURCE}}}", f"{{{{resource_name}}}} {each}")
            for each in ("held", "allocatable", "capacity")
        ),
    ),
    _Panel(
        "Unhealthy devices",
        "Advertised by a plugin, but not healthy; all devices after the plugin disconnected.",
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
        "Calls of Register since the kubelet started, including rejected ones.",
        ((f"kubelet_device_plugin_registration_total{{{_RESOURCE}}}", "{{resource_name}}"),),
    ),
    _Panel(
        "Allocate",
        "Duration of Allocate calls.",
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
        "Pods that the topology manager processed, and rejected pods, per second.",
        (
            (_rate(f"{_TOPOLOGY}_requests_total"), "all"),
            (_rate("kubelet_admission_rejections_total"), "{{reason}}"),
        ),
        "ops",
    ),
    _Panel(
        "Admission time",
        "Duration of admissions in the topology manager, including calls of plugins.",
        tuple(
            (_quantile(share, f"{_TOPOLOGY}_duration_ms", "le", _CHOSEN), name)
            for share, name in ((0.5, "median"), (0.99, "99 %"))
        ),
        "ms",
    ),
    _Panel(
        "Alignment",
        "Containers or pods aligned to one NUMA node, and rejected ones (single-numa-node).",
        (
            (f"{_ALIGNED}_count{{{_CHOSEN}}}", "{{scope}} aligned"),
            (f"{_ALIGNED}_failure_count{{{_CHOSEN}}}", "{{scope}} rejected"),
            (f"{_TOPOLOGY}_errors_total{{{_CHOSEN}}}", "errors"),
        ),
    ),
    _Panel(
        "PodResources",
        "Calls per second.",
        (
            (_rate(f"{_LISTING}_requests_total"), "{{server_api_version}}"),
            (_rate(f"{_LISTING}_errors_list"), "{{server_api_version}} errors of List"),
        ),
        "reqps",
    ),
    _Panel(
        "Pods and containers",
        "Pods and containers on the node.",
        (
            (f"kubelet_running_pods{{{_CHOSEN}}}", "pods"),
            (f"kubelet_running_containers{{{_CHOSEN}}}", "containers {{container_state}}"),
        ),
    ),
)


def text() -> str:
    """Return the dashboard as JSON for Grafana."""
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
