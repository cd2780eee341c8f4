#!/usr/bin/env bash
# Runs Redis' own test suite against the server, unit by unit, each on a store of its own.
#
#   crates/gabion-server/conformance/redis.sh [PROGRAM [UNIT...]]
#
# PROGRAM is a program with the feature `server`, built anew if there is none; UNIT is a unit of the
# suite as `unit/type/list`, by default all that `units` lists. The suite comes from Debian's source
# package. `left-out` has the tests that are not run, each with its reason.
#
# Prints a row for each unit: tests that passed, failed, and were left out. Fails if one failed.
# Units that `own-servers` lists start their servers themselves, each with its own parameters: there
# `redis-server` stands in for Redis' program. Units that `with-debug` lists need no more of DEBUG
# than this server has.
# GABION_SUITE_DIR keeps the suite and the last output of each unit, target/redis-suite by default;
# GABION_SUITE_SECONDS ends a unit that takes longer, 240 by default.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
work=${GABION_SUITE_DIR:-$root/target/redis-suite}
seconds=${GABION_SUITE_SECONDS:-240}
find_program "${1:-}"
if [ $# -gt 1 ]; then
    units=("${@:2}")
else
    mapfile -t units < <(grep -v '^#' "$here/units")
fi

suite=$("$root/.ci/debian-source" redis "$work")
logs=$work/logs
mkdir -p "$logs"
# Names as the suite compares them; reasons are for people.
grep -v '^#' "$here/left-out" | cut -d '|' -f 1 | sed 's/ *$//' > "$work/skipped"

# Replicas, Redis' DEBUG, clusters; and maxmemory at run time: it is the ceiling of the store's
# memory, which is set when the store is opened.
common_tags='-needs:repl -cluster -needs:config-maxmemory'

# The suite looks for its programs in its own directory.
mkdir -p "$suite/src"
cp "$here/redis-server" "$suite/src/redis-server"
export GABION_PROGRAM=$program

count() {
    grep -acE "^\[($1)\]" "$2" || true
}

all_passed=0 all_failed=0 all_skipped=0
printf '%-28s %6s %6s %8s\n' unit passed failed 'left out'
for unit in "${units[@]}"; do
    log=$logs/${unit//\//-}.log
    status=0
    common=(--clients 1 --single "$unit" --skipfile "$work/skipped" --ignore-encoding)
    tags="$common_tags -needs:debug"
    if grep -qxF "$unit" "$here/with-debug"; then
        tags=$common_tags
    fi
    if grep -qxF "$unit" "$here/own-servers"; then
        options=(--tags "$tags")
    else
        run=$(mktemp -d)
        port=$("$here/server" start "$run/1" "$program")
        options=(--host 127.0.0.1 --port "$port" --tags "$tags -external:skip")
    fi
    (cd "$suite" && timeout "$seconds" ./runtest "${common[@]}" "${options[@]}") \
        > "$log.colours" 2>&1 || status=$?
    finish
    sed 's/\x1b\[[0-9;]*m//g' "$log.colours" > "$log"
    rm "$log.colours"
    passed=$(count ok "$log")
    failed=$(count 'err|exception|timeout' "$log")
    skipped=$(count skip "$log")
    # A unit that ends early says so by its status alone.
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
    fi
    printf '%-28s %6d %6d %8d\n' "$unit" "$passed" "$failed" "$skipped"
    grep -aE '^\[(err|exception|timeout)\]' "$log" | cut -c 1-200 || true
    if [ "$status" -eq 124 ]; then
        echo "it was ended after $seconds s"
    fi
    all_passed=$((all_passed + passed))
    all_failed=$((all_failed + failed))
    all_skipped=$((all_skipped + skipped))
done
printf '%-28s %6d %6d %8d\n' all "$all_passed" "$all_failed" "$all_skipped"
[ "$all_failed" -eq 0 ]
