#!/usr/bin/env bash
# The nightly run, for cron: warn of messages about to be lost, archive new ones, audit and maintain the lake.
#
#   nightly.sh [CONFIG]     CONFIG: a TOML file with a table for each job, default /etc/commitlake.toml
#
# Handling of a job's exit codes (commitlake --help lists them):
#   0    continue
#   3    the job ran and found a problem: continue, but end with 3, so that cron's mail or your monitoring reports it
#   4    another run was first, or a store is not the one that was archived: stop, because later steps would be useless
#   1 2  error, or wrong configuration: stop
# guard runs before the archive, to show what will soon be deleted; the archive runs whatever guard finds. maintain,
# which deletes data, runs only after an audit that found no problem.
set -u
config=${1:-/etc/commitlake.toml}
found=0

run() {
    commitlake "$@" --config "$config"
    local code=$?
    case $code in
        0) ;;
        3) found=3 ;;
        *)
            echo "commitlake $1 ended with $code" >&2
            [ "$1" = guard ] || exit "$code"
            found=$code
            ;;
    esac
    return "$code"
}

run guard --format csv >/dev/null
run archive --quiet
run audit --quiet && run maintain --quiet
exit "$found"
