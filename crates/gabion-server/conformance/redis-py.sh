#!/usr/bin/env bash
# Runs the tests of redis-py, Redis' client for Python, against the server.
#
#   crates/gabion-server/conformance/redis-py.sh [PROGRAM [ARGUMENTS OF PYTEST]]
#
# PROGRAM is a program with the feature `server`, built anew if there is none. The tests come with the
# source distribution of redis-py. `left-out-redis-py` has those that are not run, with reasons; tests
# of clusters, sentinels, modules and of newer servers leave themselves out.
#
# GABION_REDIS_PY_DIR keeps the tests and their environment, target/redis-py by default.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
work=${GABION_REDIS_PY_DIR:-$root/target/redis-py}
version=8.1.0
find_program "${1:-}"

mkdir -p "$work"
tests=$work/redis-$version
if [ ! -x "$work/environment/bin/pytest" ]; then
    python3 -m venv "$work/environment"
    "$work/environment/bin/pip" install --quiet --disable-pip-version-check "redis==$version" \
        'pytest<9' pytest-asyncio pytest-timeout coverage ujson numpy xxhash pybreaker aiohttp \
        redis-entraid cryptography opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
fi
if [ ! -d "$tests" ]; then
    "$work/environment/bin/pip" download --quiet --disable-pip-version-check --no-deps \
        --no-binary :all: --dest "$work" "redis==$version"
    tar xzf "$work/redis-$version.tar.gz" -C "$work"
fi

run=$(mktemp -d)
port=$("$here/server" start "$run/1" "$program")

mapfile -t left_out < <(grep -v '^#' "$here/left-out-redis-py" | cut -d '|' -f 1 | sed 's/ *$//')
deselected=()
for name in "${left_out[@]}"; do
    deselected+=("--deselect" "tests/$name")
done
files=()
for file in background client commands connect connection_pool encoding function hash lock monitor \
    pipeline pubsub scripting; do
    files+=("tests/test_$file.py")
done
cd "$tests"
"$work/environment/bin/python" -m pytest "${files[@]}" -q -p no:cacheprovider --timeout 60 \
    --redis-url "redis://127.0.0.1:$port/9" -m 'not onlycluster and not redismod' \
    "${deselected[@]}" "${@:2}"
