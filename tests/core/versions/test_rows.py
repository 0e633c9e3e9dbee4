"""Which test shows each row of what differs between kubelets; what has none, and why."""

from __future__ import annotations

import re

from tests.paths import ROOT

ROWS = {
    "R1": "test_r1_a_plugin_registers_before_it_serves",
    "R2": "test_r2_whose_options_count",
    "R3": "test_end_of_a_replaced_stream",
    "R4": "test_r4_the_newest_of_two_plugins_leaves",
    "R5": "test_r5_the_same_socket_again_with_all_defects",
    "R7": "test_list_of_an_older_plugin",
    "R8": "test_r8_what_a_watched_plugin_is_told",
    "D1": "test_d1_d2_the_plugin_directory_after_a_start",
    "D2": "test_d1_d2_the_plugin_directory_after_a_start",
    "D4": "test_d4_a_watched_plugin_that_fails_once",
    "A1": "test_a1_nothing_is_healthy",
    "A2": "test_a1_a2_the_kubelet_restarts_while_the_plugin_is_away",
    "A3": "test_container_that_had_restarted",
    "A5": "test_device_that_is_being_allocated",
    "A6": "test_a6_what_a_sidecar_hands_on",
    "A11": "test_a11_a_resource_that_a_claim_provides",
    "A12": "test_failed_preferred_allocation",
    "C1": "test_c1_c2_c3_cdi_devices",
    "C2": "test_c1_c2_c3_cdi_devices",
    "C3": "test_c1_c2_c3_cdi_devices",
    "TA1": "test_ta1_which_hints_are_merged",
    "TA2": "test_ta2_ta3_ta4_an_option_that_the_version_rejects",
    "TA3": "test_ta2_ta3_ta4_an_option_that_the_version_rejects",
    "TA4": "test_ta2_ta3_ta4_an_option_that_the_version_rejects",
    "TA5": "test_ta5_pod_level_resources",
    "TA6": "test_ta6_nodes_without_devices",
    "TA7": "test_ta7_a_topology_without_nodes",
    "TA8": "test_ta8_a_sidecar_beside_the_app_containers",
    "K2": "test_k2_p10_a_device_without_topology",
    "K3": "test_k3_k4_a_file_of_each_format",
    "K4": "test_k3_k4_a_file_of_each_format",
    "K5": "test_corrupt_checkpoint",
    "P2": "test_p2_p3_finished_pods",
    "P3": "test_p2_p3_finished_pods",
    "P4": "test_p4_get_allocatable",
    "P5": "test_p5_unhealthy_devices_among_the_allocatable",
    "P6": "test_p6_get",
    "P7": "test_p7_sidecars",
    "P8": "test_p8_memory",
    "P9": "test_p9_cpus_of_a_container_that_has_none_of_its_own",
    "P10": "test_k2_p10_a_device_without_topology",
    "P11": "test_p11_entries",
    "P12": "test_p12_the_rate_limit",
    "P13": "test_p13_p15_a_claim",
    "P14": "test_cdi_devices_of_a_claim",
    "P15": "test_p13_p15_a_claim",
    "P16": "test_p16_pod_resources_lists_cpus_and_memory",
    "P17": "test_m1_p17_what_is_counted",
    "H1": "test_h1_allocated_resources_status",
    "H3": "test_health_update_names_the_pod_of_the_device",
    "H4": "test_order_of_allocated_resources",
    "H5": "test_h5_h6_when_the_registration_server_fails",
    "H6": "test_h5_h6_before_the_first_start",
    "M1": "test_m1_metrics_of_admissions",
}
"""Each row with a switch or a quirk, and a test that sees both outcomes."""

NONE = {
    "R6": "proposed, and not known to be merged",
    "D5": "nothing that a plugin could see",
    "D6": "the directory is free here",
    "A4": "1.22.0 alone; what came with it is gone in 1.32",
    "A7": "the order in 1.20 and 1.21 is not known well enough",
    "A8": "what 1.20 to 1.23 did at the start of a container that is not active any more",
    "A10": "a panic that no caller can rely on",
    "A13": "unchanged in all versions",
    "C4": "the order of map entries, which no reader may rely on",
    "K1": "older than 1.20",
    "K6": "unchanged since 1.20",
    "P1": "older than 1.20",
    "H2": "the queue of health updates has no limit here",
    "N1": "another API",
}
"""Each row without one, and why."""


def test_every_test_that_a_row_names_is_there() -> None:
    there: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there.update(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    assert set(ROWS.values()) <= there
    assert not ROWS.keys() & NONE.keys()
