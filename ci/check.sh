#!/bin/sh
# Run `devicemanager check` and write reports to conformance/.
# COMMAND: the plugin's command. OPTIONS: more options. PROFILE: core, resilient or complete.
# SOURCE: where pip installs `devicemanager` from; if it is not set, the command in PATH is used.
set -u
mkdir -p conformance
if [ -n "${SOURCE:-}" ]; then
    # Use a virtual environment: pip can reject an installation into the system's Python (PEP 668).
    venv=$(mktemp -d) && python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "$SOURCE" ||
        exit 2
    PATH="$venv/bin:$PATH"
fi
# Split both into words as the shell does, so that users can quote arguments.
eval "set -- ${OPTIONS:-} -- $COMMAND"
devicemanager check --profile "${PROFILE:-resilient}" \
    --report junit=conformance/junit.xml --report html=conformance/report.html \
    --report markdown=conformance/summary.md --report json=conformance/report.json "$@"
status=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f conformance/summary.md ]; then
    cat conformance/summary.md >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
