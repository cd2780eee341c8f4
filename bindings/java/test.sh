#!/usr/bin/env bash
# Tests the packages for Java: builds the native library by cargo, compiles, runs all tests.
#
#   bindings/java/test.sh [ARGUMENTS OF mvn]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mvn --batch-mode --no-transfer-progress verify "$@"
