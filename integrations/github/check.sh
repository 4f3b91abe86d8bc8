#!/usr/bin/env bash
# Runs `proctor check` for a pull request: summary, outputs, receipt; the exit code decides the job.
# Reads INPUT_BASE, INPUT_KIND and INPUT_STRICT; writes $GITHUB_STEP_SUMMARY and $GITHUB_OUTPUT where they are set.
set -uo pipefail

proctor=${PROCTOR:-proctor}
receipt=${PROCTOR_RECEIPT:-${RUNNER_TEMP:-.}/proctor-receipt.json}
arguments=(check HEAD --receipt "$receipt" --junit "${receipt%.json}.xml" --markdown)
[ -n "${INPUT_BASE:-}" ] && arguments+=(--base "$INPUT_BASE")
[ -n "${INPUT_KIND:-}" ] && arguments+=(--kind "$INPUT_KIND")

summary=$("$proctor" "${arguments[@]}")
code=$?
printf '%s\n' "$summary"
[ -n "${GITHUB_STEP_SUMMARY:-}" ] && printf '%s\n' "$summary" >>"$GITHUB_STEP_SUMMARY"

verdict=failed
if [ -s "$receipt" ]; then
  verdict=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$receipt")
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  printf 'verdict=%s\nreceipt=%s\n' "$verdict" "$receipt" >>"$GITHUB_OUTPUT"
fi

# 8 is inconclusive, 3 asks for a person: neither is a defect of the change, so they stop the job only when asked to.
if [ "${INPUT_STRICT:-false}" != true ] && { [ "$code" -eq 8 ] || [ "$code" -eq 3 ]; }; then
  printf '::warning::Proctor: %s\n' "$verdict"
  exit 0
fi
exit "$code"
