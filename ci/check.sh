#!/bin/sh
# Runs `devicemanager check` with reports under conformance/.
# COMMAND: the plugin's command. OPTIONS: further options. PROFILE: core, resilient or complete.
# SOURCE: what pip installs `devicemanager` from; without it, the command that is in PATH.
set -u
mkdir -p conformance
if [ -n "${SOURCE:-}" ]; then
    # Not into the machine's own Python, which may reject that.
    venv=$(mktemp -d) && python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "$SOURCE" ||
        exit 2
    PATH="$venv/bin:$PATH"
fi
# The words of both are split here on purpose, with the shell's own quoting.
eval "set -- ${OPTIONS:-} -- $COMMAND"
devicemanager check --profile "${PROFILE:-resilient}" \
    --report junit=conformance/junit.xml --report html=conformance/report.html \
    --report markdown=conformance/summary.md --report json=conformance/report.json "$@"
status=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f conformance/summary.md ]; then
    cat conformance/summary.md >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
