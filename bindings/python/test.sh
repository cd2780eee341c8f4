#!/bin/sh
# Tests the package for Python: makes an environment, builds, checks types, runs pytest.
#
#   bindings/python/test.sh [ARGUMENTS OF PYTEST]
#
# GABION_PYTHON is the interpreter, python3 if it is not set. GABION_PYTHON_ENV is a directory for
# the environment, which is kept: target/python by default.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
environment=${GABION_PYTHON_ENV:-${CARGO_TARGET_DIR:-$here/../../target}/python}
if [ ! -x "$environment/bin/python" ]; then
    "${GABION_PYTHON:-python3}" -m venv "$environment"
fi
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
    -r "$here/tests/requirements.txt"
PATH="$environment/bin:$PATH"
VIRTUAL_ENV=$environment
export PATH VIRTUAL_ENV
cd "$here"
maturin develop --quiet --locked
mypy python/gabion examples tests/typed.py
exec python -m pytest -q "$@"
