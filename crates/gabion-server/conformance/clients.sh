#!/usr/bin/env bash
# Tries clients of four languages against the server: pools, pipelines, MULTI and WATCH, messages,
# scripts, blocking pops, streams with a group, expiry; and a kill of the server by signal 9 in the
# middle of writes, after which nothing that was acknowledged is missing.
#
#   crates/gabion-server/conformance/clients.sh [PROGRAM [CLIENT...]]
#
# PROGRAM is a program with the feature `server`, built anew if there is none; CLIENT is redis-py,
# ioredis, go-redis or jedis, by default each of them. A client comes from its registry; where its
# language is not installed it is left out aloud. `clients` has a program for each.
#
# Prints a row for each client: checks that passed and failed. Fails if one failed.
# GABION_CLIENTS_DIR keeps what is installed and the last output, target/clients by default;
# GABION_CLIENTS_COUNT is how often each check does its work, 100 by default.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
work=${GABION_CLIENTS_DIR:-$root/target/clients}
declare -A versions=([redis-py]=8.1.0 [ioredis]=6.0.0 [go-redis]=9.23.0 [jedis]=8.0.2)

prepare_redis-py() { python_packages "$1" "redis==$2"; }
command_redis-py() { command=("$1/bin/python" "$here/clients/redis_py.py"); }

prepare_ioredis() { node_packages "$1" "ioredis@$2"; }
# A module of CommonJS finds its packages where this variable says.
command_ioredis() { command=(env "NODE_PATH=$1/node_modules" node "$here/clients/ioredis.cjs"); }

prepare_go-redis() {
    go_program "$1" "$here/clients/go_redis.go" "github.com/redis/go-redis/v9@v$2"
}
command_go-redis() { command=("$1/main"); }

prepare_jedis() {
    needs mvn javac || return
    cat > "$1/pom.xml" << EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>gabion</groupId>
  <artifactId>clients</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>redis.clients</groupId>
      <artifactId>jedis</artifactId>
      <version>$2</version>
    </dependency>
  </dependencies>
</project>
EOF
    mvn --batch-mode --quiet --file "$1/pom.xml" dependency:copy-dependencies \
        "-DoutputDirectory=$1/jars" &&
        javac -nowarn -cp "$1/jars/*" -d "$1" "$here/clients/JedisChecks.java"
}
command_jedis() { command=(java -cp "$1:$1/jars/*" JedisChecks); }

find_program "${1:-}"
clients=("${@:2}")
if [ ${#clients[@]} -eq 0 ]; then
    clients=(redis-py ioredis go-redis jedis)
fi
for client in "${clients[@]}"; do
    trial "$client" "${versions[$client]}" 14 1 "${GABION_CLIENTS_COUNT:-100}"
done
print_table
