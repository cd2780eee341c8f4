#!/usr/bin/env bash
# Tests the package for Node: installs what the tests need, builds the native library, checks types,
# runs the suite of abstract-level and all other tests.
#
#   bindings/node/test.sh [ARGUMENTS OF node --test]
#
# With arguments the suite of abstract-level is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
npm ci --ignore-scripts --no-audit --no-fund --silent
node build.js
npx --no-install tsc
if [ $# -eq 0 ]; then
    # Its thousands of lines that say "ok" are left out.
    node test/abstract-level.js | awk '
        /^not ok/ { shown = 20 }
        shown-- > 0 || /^# (tests|pass|fail) / { print }'
fi
node --test "$@" test/*.test.js test/programs/*.test.mjs
