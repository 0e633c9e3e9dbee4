#!/bin/sh
# Check with curl that a plugin's changes reach the kubelet after restarts of the kubelet.
# Usage: planted_bug.sh PLUGIN [OPTION ...]. Exit status: 0 if they arrive, otherwise 1.
set -eu
root=$(mktemp -d /tmp/mk-XXXXXX)
trap 'kill $plugin $kubelet 2>/dev/null || true; wait; rm -rf "$root"' EXIT
plugin= kubelet=
call() { curl -s --fail-with-body --unix-socket "$root/control.sock" "http://localhost/v1/$@"; }

devicemanager run --root "$root" --control > "$root/log" &
kubelet=$!
until call node > "$root/response" 2>&1; do kill -0 $kubelet; sleep 0.05; done
"$@" -dir "$root/device-plugins" > "$root/plugin.log" &
plugin=$!
gpus() {
    call waits/resource -d "{\"resource\": \"conformance.example.com/device\", \"count\": $1, \"timeout\": 5}" \
        || { echo "no $1 healthy devices $2"; exit 1; }
}
gpus 4 "after the start"
for restart in 1 2 3; do
    call node/restart -X POST
    gpus 4 "after restart $restart"
    printf 'device-0 Unhealthy\ndevice-1 Healthy\ndevice-2 Healthy\ndevice-3 Healthy\n' > "$root/devices.txt"
    kill -USR1 $plugin
    gpus 3 "after device-0 broke, $restart restarts"
    rm "$root/devices.txt"
    kill -USR1 $plugin
    gpus 4 "after device-0 recovered, $restart restarts"
done
echo "all changes arrived"
