#!/usr/bin/env bash
# Tells how much memory idle connections take: opens many, says PING on each, leaves them open.
#
#   crates/gabion-server/conformance/idle.sh [PROGRAM [CONNECTIONS]]
#
# PROGRAM is a program with the feature `server`, built anew if there is none. There are 10,000
# connections by default, or as many as the limit of open files allows.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
find_program "${1:-}"
count=${2:-10000}
ulimit -n "$(ulimit -Hn)"
# Some of the server's files are the store's.
files=$(ulimit -n)
if [ "$files" != unlimited ] && [ $((files * 3 / 4)) -le "$count" ]; then
    count=$((files * 3 / 4 - 10))
    echo "--- $files open files are allowed: $count connections"
fi
run=$(mktemp -d)
port=$("$here/server" start "$run/1" "$program" --maxclients $((count + 10)))
python3 - "$port" "$count" "$(cat "$run/1/pid")" << 'EOF'
import socket
import sys

port, count, process = map(int, sys.argv[1:])


def mib(name):
    with open(f"/proc/{process}/status") as status:
        line = next(line for line in status if line.startswith(name))
    return int(line.split()[1]) / 1024


def ping(connection):
    connection.sendall(b"PING\r\n")
    if (reply := connection.recv(100)) != b"+PONG\r\n":
        sys.exit(f"{reply!r} in place of a pong")


before = mib("VmRSS")
connections = []
for _ in range(count):
    connections.append(socket.create_connection(("127.0.0.1", port)))
    ping(connections[-1])
after = mib("VmRSS")
for connection in connections[:: max(1, count // 100)]:
    ping(connection)
each = (after - before) * 1024 / count
print(f"{count} connections: {before:.1f} MiB before, {after:.1f} MiB after, {each:.1f} KiB each")
EOF
