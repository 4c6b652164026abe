#!/usr/bin/env bash
#
# All the set-up, then what CI runs at every commit: form, lint, types, import contracts, and the tests, those against real
# servers included. It takes about 25 minutes on two cores.
#
# Usage:
#   ./run-tests.sh             what CI runs: check and servers
#   ./run-tests.sh all         the same, and what runs before a release only: the tests marked `long`, with their reasons,
#                              the other cases of those marked `some_cases`, most tests with RocketMQ 4.9.7, many kills of
#                              processes, and many examples of each property
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

# With a full disk, brokers refuse messages and HDFS becomes read-only: tests fail in ways that do not name it.
free_kib=$(df -Pk -- "${TMPDIR:-/tmp}" | awk 'NR == 2 { print $4 }')
if [ "$free_kib" -lt $((10 << 20)) ]; then
  printf 'run-tests.sh: error: %s: expected 10 GiB of free space, found %d MiB\n' "${TMPDIR:-/tmp}" $((free_kib >> 10)) >&2
  exit 1
fi

./spark-submit.sh --set-up-only --dev
[ $# -gt 0 ] || set -- check servers
[ "$*" != all ] || set -- check servers long

# Python keeps the modules that it compiles, the tests' too, even where it is told not to: each of the processes that tests start
# would compile them again.
unset PYTHONDONTWRITEBYTECODE

end_background() {
  local group
  for group in $(jobs -rp); do
    kill -- "-$group" 2>/dev/null || true
  done
}
trap end_background EXIT

# Start a command beside the others, in a group of its own, so that all of it can be ended; its process id is in `started`.
beside() {
  set -m
  "$@" </dev/null &
  started=$!
  set +m
}

# Lint, types and documentation keep one core busy, and are checked beside the tests; their output comes after that of the tests.
run_check() {
  local report static failed=0
  report=$(mktemp)
  beside .venv/bin/poe --quiet static >"$report" 2>&1
  static=$started
  .venv/bin/poe --quiet compile-tests
  .venv/bin/poe --quiet unit || failed=$?
  wait "$static" || failed=$?
  cat "$report"
  rm -f "$report"
  return "$failed"
}

run_task() {
  case $1 in
    check) run_check ;;
    *) .venv/bin/poe --quiet "$1" ;;
  esac
}

# The servers are fetched and built beside the checks. What fails here is tried again, and reported, by the task that needs them.
preparing=
if [ $# -gt 1 ] && [ "$1" = check ]; then
  beside .venv/bin/poe --quiet prepare >/dev/null 2>&1
  preparing=$started
fi

summary=()
failed=0
for task in "$@"; do
  began=$SECONDS
  if [ -n "$preparing" ] && [ "$task" != check ]; then
    wait "$preparing" || true
    preparing=
  fi
  if run_task "$task"; then
    result=passed
  else
    result="FAILED, exit code $?"
    failed=1
  fi
  summary+=("$(printf '%-10s %s (%d s)' "$task" "$result" "$((SECONDS - began))")")
done

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
