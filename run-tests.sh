#!/usr/bin/env bash
#
# All the set-up, then what CI runs at every commit: form, lint, types, import contracts, and the tests, those against real
# servers included. It takes about half an hour on two cores.
#
# Usage:
#   ./run-tests.sh             what CI runs: check and servers
#   ./run-tests.sh all         the same, and what runs before a release only: the tests marked `long`, with their reasons,
#                              most tests with RocketMQ 4.9.7, many kills of processes, and many examples of each property
#   ./run-tests.sh check       what needs no server
#   ./run-tests.sh servers     the tests against real servers: RocketMQ, HBase, S3, and Spark
#   ./run-tests.sh long        what `all` runs beside check and servers
#   ./run-tests.sh TASK ...    any tasks of `poe --help`
#
# Every task runs, also after one that failed; the exit code is 0 only where all passed.

set -euo pipefail

cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")"

case ${1:-} in
  -h | --help)
    sed -n '3,/^$/s/^# \{0,1\}//p' run-tests.sh
    exit
    ;;
esac

./spark-submit.sh --set-up-only --dev
[ $# -gt 0 ] || set -- check servers
[ "$*" != all ] || set -- check servers long

# The servers are fetched and built beside the checks, which leave a core idle for a while. What fails here is tried again,
# and told, by the task that needs them.
preparing=
if [ $# -gt 1 ] && [ "$1" = check ]; then
  set -m  # a group of its own, so that all of it can be ended
  .venv/bin/poe --quiet prepare >/dev/null 2>&1 </dev/null &
  preparing=$!
  set +m
  trap 'kill -- "-$preparing" 2>/dev/null || true' EXIT
fi

summary=()
failed=0
for task in "$@"; do
  started=$SECONDS
  if [ -n "$preparing" ] && [ "$task" != check ]; then
    wait "$preparing" || true
    preparing=
    trap - EXIT
  fi
  if .venv/bin/poe --quiet "$task"; then
    result=passed
  else
    result="FAILED, exit code $?"
    failed=1
  fi
  summary+=("$(printf '%-10s %s (%d s)' "$task" "$result" "$((SECONDS - started))")")
done

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
