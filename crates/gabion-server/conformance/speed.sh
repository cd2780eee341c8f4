#!/usr/bin/env bash
# Measures the server in turns with Debian's redis-server, both with appendfsync everysec, by
# redis-benchmark: a table of requests a second and percentiles of latency in milliseconds.
#
#   crates/gabion-server/conformance/speed.sh [PROGRAM]
#
# PROGRAM is a program with the feature `server`, built anew if there is none. Needs redis-server and
# redis-benchmark. Each round starts both servers anew on empty directories; figures are the medians
# of the rounds. Prints Markdown, with the load of the machine before and after.
# GABION_SPEED_ROUNDS is the number of rounds, 3 by default; GABION_SPEED_REQUESTS that of the
# requests of a measurement without pipelines, 100,000 by default (with them twice as many);
# GABION_SPEED_KEYS that of the keys, 100,000; GABION_SPEED_PIPELINES the depths, "1 16 64";
# GABION_SPEED_COMMANDS the commands, by default all; GABION_SPEED_CLIENTS the connections, 50.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
needs redis-server redis-benchmark redis-cli
find_program "${1:-}"
rounds=${GABION_SPEED_ROUNDS:-3}
requests=${GABION_SPEED_REQUESTS:-100000}
keys=${GABION_SPEED_KEYS:-100000}
read -ra depths <<< "${GABION_SPEED_PIPELINES:-1 16 64}"
read -ra commands <<< "${GABION_SPEED_COMMANDS:-SET GET INCR LPUSH HSET ZADD XADD MSET LRANGE}"
clients=${GABION_SPEED_CLIENTS:-50}

value=$(printf 'x%.0s' $(seq 100))
any=__rand_int__
declare -A words=(
    [SET]="SET key:$any $value"
    [GET]="GET key:$any"
    [INCR]="INCR counter:$any"
    [LPUSH]="LPUSH pushed $value"
    [HSET]="HSET hash field:$any $value"
    [ZADD]="ZADD scores $any member:$any"
    [XADD]="XADD stream * field $value"
    [MSET]="MSET$(printf " key:$any $value%.0s" $(seq 10))"
    [LRANGE]="LRANGE list 0 99"
)

redis=
stop_redis() {
    if [ -n "$redis" ]; then
        kill "$redis" || true
        wait "$redis" || true
        redis=
    fi
}
trap 'stop_redis; finish' EXIT

# Starts a server, and sets `port`.
start() {
    run=$(mktemp -d)
    if [ "$1" = gabion ]; then
        port=$("$here/server" start "$run/1" "$program" --appendfsync everysec)
        return
    fi
    port=$((20000 + RANDOM % 10000))
    redis-server --port "$port" --dir "$run" --save '' --appendonly yes --appendfsync everysec \
        --daemonize no > "$run/log" 2>&1 &
    redis=$!
    until redis-cli -p "$port" ping > /dev/null 2>&1; do
        kill -0 "$redis" || { cat "$run/log" >&2; exit 1; }
        sleep 0.1
    done
}

# Asks the server, and prints `requests a second, p50, p99, p99.9`.
measure() {
    local depth=$1 number=$requests asked
    read -ra asked <<< "$2"
    if [ "$depth" -gt 1 ]; then
        number=$((2 * requests))
    fi
    redis-benchmark -p "$port" -n "$number" -r "$keys" -c "$clients" -P "$depth" "${asked[@]}" |
        tr '\r' '\n' | awk '
            # Of the distribution only the last lines count, which come at the end of a measurement.
            $1 + 0 >= 99.9 && $2 == "<=" && !tail { tail = $3 }
            /throughput summary/ { rate = $3 }
            /avg +min +p50/ { getline; p50 = $3; p99 = $5 }
            END { print rate, p50, p99, tail }'
}

results=$(mktemp)
load() { cut -d ' ' -f 1-3 /proc/loadavg; }
before=$(load)
for round in $(seq "$rounds"); do
    for server in redis gabion; do
        start "$server"
        redis-benchmark -p "$port" -n $((2 * keys)) -r "$keys" -P 64 -q SET "key:$any" "$value" \
            > /dev/null
        redis-benchmark -p "$port" -n 200 -P 16 -q LPUSH list "$value" > /dev/null
        for depth in "${depths[@]}"; do
            for command in "${commands[@]}"; do
                echo "$command $depth $server $(measure "$depth" "${words[$command]}")" \
                    >> "$results"
                echo "round $round: $(tail -n 1 "$results")" >&2
            done
        done
        stop_redis
        finish
    done
done

theirs=$(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')
echo "redis-server $theirs and this server, $rounds rounds, $clients" \
    "connections, $keys keys, values of 100 bytes; load of the machine $before before and" \
    "$(load) after."
echo
echo '| command | pipeline | redis-server | here | ratio | p50 | p99 | p99.9 |'
echo '|---|---|---|---|---|---|---|---|'
awk '
    function median(name,    all, count, i, j, held) {
        count = split(values[name], all, " ")
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && all[j - 1] + 0 > all[j] + 0; j--) {
                held = all[j]; all[j] = all[j - 1]; all[j - 1] = held
            }
        return all[int((count + 1) / 2)]
    }
    {
        row = $1 " " $2
        if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
        for (field = 4; field <= 7; field++)
            values[row " " $3 " " field] = values[row " " $3 " " field] " " $field
    }
    END {
        for (at = 1; at <= rows; at++) {
            row = order[at]
            split(row, names, " ")
            theirs = median(row " redis 4"); ours = median(row " gabion 4")
            printf "| %s | %s | %d | %d | %.2f |", names[1], names[2], theirs, ours, ours / theirs
            for (field = 5; field <= 7; field++)
                printf " %s / %s |", median(row " redis " field), median(row " gabion " field)
            print ""
        }
    }' "$results"
rm "$results"
