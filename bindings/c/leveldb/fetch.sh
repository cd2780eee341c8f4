#!/bin/sh
# Fetches LevelDB's own test of its C interface from Debian's source package, and prints its path.
#
#   bindings/c/leveldb/fetch.sh DIRECTORY
set -eu
if [ $# -ne 1 ]; then
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
upstream=$("$(dirname "$0")/../../../.ci/debian-source" leveldb "$1")
find "$upstream" -name c_test.c
