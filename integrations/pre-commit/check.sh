#!/usr/bin/env bash
# A git pre-commit hook: a staged change that is refuted is not committed; one that stays open only warns.
# Install it: ln -s "$(pwd)/integrations/pre-commit/check.sh" .git/hooks/pre-commit, or through `.pre-commit-hooks.yaml`.
set -uo pipefail

# Inside a hook these name the repository and its index; Proctor finds them itself.
unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE GIT_PREFIX
proctor=${PROCTOR:-proctor}
if ! command -v "$proctor" >/dev/null 2>&1; then
  echo "proctor is not installed: the staged change was not checked." >&2
  exit 0
fi
"$proctor" check --staged "$@"
code=$?
case $code in
  0) exit 0 ;;
  3 | 8) echo "proctor: not proven; committed anyway (see above)." >&2; exit 0 ;;
  *) exit "$code" ;;
esac
