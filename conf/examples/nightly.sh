#!/usr/bin/env bash
# The nightly run, for cron: what is about to be lost, what is new, whether it is all there, and cleaning up.
#
#   nightly.sh [CONFIG]     CONFIG: a TOML file with a table for each job, default /etc/commitlake.toml
#
# What each exit code of a job means here (commitlake --help lists them):
#   0    go on
#   3    it ran, and found something: go on, but end with 3, so that cron's mail or your monitoring notifies somebody
#   4    another run was first, or a store is not the one that was archived: later steps make no sense, stop
#   1 2  failed, or is set up wrongly: stop
# guard runs before the archive, to show what will soon be deleted; the archive runs whatever it finds. maintain, which
# deletes, only follows an audit that found nothing wrong.
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
