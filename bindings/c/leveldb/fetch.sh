#!/bin/sh
# Fetches LevelDB's own test of its C interface from Debian's source package, and prints its path.
#
#   bindings/c/leveldb/fetch.sh DIRECTORY
#
# Needs apt-get and a network. Nothing of the system's lists of packages changes.
set -eu
if [ $# -ne 1 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
cd "$1"
directory=$(pwd)
found=$(find . -name c_test.c | head -n 1)
if [ -z "$found" ]; then
    mkdir -p sources lists/partial
    # Where the system has packages from, it has their sources from.
    for list in /etc/apt/sources.list.d/*.sources; do
        if grep -q '^Types: deb$' "$list"; then
            sed 's/^Types: deb$/Types: deb-src/' "$list" > "sources/${list##*/}"
        fi
    done
    set -- -q -q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$directory/sources" \
        -o "Dir::State::Lists=$directory/lists" -o APT::Sandbox::User=root
    apt-get "$@" update > /dev/null
    apt-get "$@" source --download-only leveldb > /dev/null
    tar xzf leveldb_*.orig.tar.gz
    found=$(find . -name c_test.c | head -n 1)
fi
echo "$directory/${found#./}"
