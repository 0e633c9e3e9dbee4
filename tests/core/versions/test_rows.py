"""The test for each difference between kubelet versions, and differences without a test.

The letters are: R registration, D plugin directory, A admission, C CDI, TA topology, K
checkpoint, P PodResources, H health, M metrics, N other APIs.
"""

from __future__ import annotations

import re

from tests.paths import ROOT

ROWS = {
    "R1": "test_r1_plugin_registers_before_it_serves",
    "R2": "test_r2_source_of_the_options",
    "R3": "test_end_of_a_replaced_stream",
    "R4": "test_r4_newest_of_two_plugins_disconnects",
    "R5": "test_r5_same_socket_again_with_all_quirks",
    "R7": "test_list_of_an_older_plugin",
    "R8": "test_r8_status_sent_to_a_watched_plugin",
    "D1": "test_d1_d2_plugin_directory_after_a_start",
    "D2": "test_d1_d2_plugin_directory_after_a_start",
    "D4": "test_d4_watched_plugin_that_fails_once",
    "A1": "test_a1_no_healthy_device",
    "A2": "test_a1_a2_kubelet_restart_while_the_plugin_is_disconnected",
    "A3": "test_container_that_had_restarted",
    "A5": "test_device_that_is_being_allocated",
    "A6": "test_a6_reuse_of_sidecar_devices",
    "A11": "test_a11_resource_provided_by_a_claim",
    "A12": "test_failed_preferred_allocation",
    "C1": "test_c1_c2_c3_cdi_devices",
    "C2": "test_c1_c2_c3_cdi_devices",
    "C3": "test_c1_c2_c3_cdi_devices",
    "TA1": "test_ta1_merge_rule",
    "TA2": "test_ta2_ta3_ta4_options_rejected_by_the_version",
    "TA3": "test_ta2_ta3_ta4_options_rejected_by_the_version",
    "TA4": "test_ta2_ta3_ta4_options_rejected_by_the_version",
    "TA5": "test_ta5_pod_level_resources",
    "TA6": "test_ta6_hints_and_nodes_without_devices",
    "TA7": "test_ta7_empty_topology",
    "TA8": "test_ta8_sidecar_and_app_containers",
    "K2": "test_k2_p10_device_without_topology",
    "K3": "test_k3_k4_file_of_each_format",
    "K4": "test_k3_k4_file_of_each_format",
    "K5": "test_corrupt_checkpoint",
    "P2": "test_p2_p3_finished_pods",
    "P3": "test_p2_p3_finished_pods",
    "P4": "test_p4_get_allocatable",
    "P5": "test_p5_unhealthy_devices_in_allocatable",
    "P6": "test_p6_get",
    "P7": "test_p7_sidecars",
    "P8": "test_p8_memory",
    "P9": "test_p9_cpus_of_a_container_without_exclusive_cpus",
    "P10": "test_k2_p10_device_without_topology",
    "P11": "test_p11_entries_per_device",
    "P12": "test_p12_rate_limit",
    "P13": "test_p13_p15_fields_of_a_claim",
    "P14": "test_cdi_devices_of_a_claim",
    "P15": "test_p13_p15_fields_of_a_claim",
    "P16": "test_p16_cpus_and_memory_in_podresources",
    "P17": "test_m1_p17_counted_calls",
    "H1": "test_h1_allocated_resources_status",
    "H3": "test_health_update_names_the_pod_of_the_device",
    "H4": "test_order_of_allocated_resources",
    "H5": "test_h5_h6_when_the_registration_server_fails",
    "H6": "test_h5_h6_before_the_first_start",
    "M1": "test_m1_metrics_of_admissions",
}
"""Difference to a test that checks both outcomes."""

NONE = {
    "R6": "proposed, and not known to be merged",
    "D5": "plugins cannot observe it",
    "D6": "the directory is a setting here",
    "A4": "only in 1.22.0, and no longer in 1.32",
    "A7": "the order in 1.20 and 1.21 is not known in detail",
    "A8": "only for container starts of inactive pods in 1.20 to 1.23",
    "A10": "a panic",
    "A13": "unchanged in all versions",
    "C4": "the order of map entries, which is not specified",
    "K1": "older than 1.20",
    "K6": "unchanged since 1.20",
    "P1": "older than 1.20",
    "H2": "the queue of health updates has no limit here",
    "N1": "another API",
}
"""Difference without a test, and the reason."""


def test_tests_of_all_rows_exist() -> None:
    there: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there.update(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    assert set(ROWS.values()) <= there
    assert not ROWS.keys() & NONE.keys()
