#!/usr/bin/env bash
# All the set-up, then everything that CI runs: form, lint, types, import contracts, and all tests, the real servers' included.
#
#   ./run-tests.sh           everything
#   ./run-tests.sh check     all that needs no server
#   ./run-tests.sh servers   the tests against real servers
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
COMMITLAKE_DEV=1 ./spark-submit.sh --set-up-only
if [[ -z ${JAVA_HOME:-} && -x .venv/java/bin/java ]]; then export JAVA_HOME=$root/.venv/java; fi

tasks=("$@")
((${#tasks[@]})) || tasks=(check servers)
started=$SECONDS
for task in "${tasks[@]}"; do
  .venv/bin/poe -q "$task"
done
echo "all of it passed: ${tasks[*]} ($((SECONDS - started)) s)"
