"""A plugin on the Device Plugin Manager (dpm), with the kubelet's side in Go."""

RED, BLUE = "color.example.com/red", "color.example.com/blue"


def test_dynamic_resources_health_and_restart(spawn, go_bin, dpm_plugin, plugin_dir, at_node_paths):
    kubelet = spawn(go_bin / "kubeletside", "-dir", plugin_dir)
    kubelet.wait_for("serving")
    plugin = spawn(*at_node_paths(plugin_dir, dpm_plugin), "-names", "red,blue")
    for resource in (RED, BLUE):
        plugin.wait_for("start", resource=resource)
        assert len(kubelet.wait_for("list", resource=resource)["devices"]) == 2
    assert {event["endpoint"] for event in kubelet.events("register")} == {
        "color.example.com_red",
        "color.example.com_blue",
    }
    plugin.send("health", "red", "red-0", "Unhealthy")
    red = kubelet.wait_for("list", resource=RED)["devices"]
    assert [device["health"] for device in red] == ["Unhealthy", "Healthy"]
    [allocation] = kubelet.call("allocate", BLUE, "blue-1", reply="allocated")["containers"]
    assert allocation["envs"] == {"BLUE_DEVICES": "blue-1"}
    plugin.send("names", "red")
    plugin.wait_for("stop", resource=BLUE)
    kubelet.forget()
    kubelet.call("restart", reply="serving")
    assert kubelet.wait_for("list", resource=RED)["devices"] == red
    assert plugin.terminate() == 0
