#!/usr/bin/env bash
# Builds the native library and puts it where the jar has it.
#
#   native/build.sh PROFILE DIRECTORY
#
# PROFILE is one of cargo's; DIRECTORY gets a folder for this platform, such as linux-x86_64.
set -euo pipefail
profile=$1 directory=$2
cd "$(dirname "${BASH_SOURCE[0]}")"
strip=()
# A published library has no symbols, which are most of its size.
if [ "$profile" != dev ]; then
    strip=(--config "profile.$profile.strip=true")
fi
library=$(cargo build --locked --package gabion-jni --profile "$profile" "${strip[@]}" \
    --message-format json-render-diagnostics |
    sed -n 's/.*"filenames":\[.*"\([^"]*libgabion_jni\.\(so\|dylib\)\)".*/\1/p')
system=$(uname -s | tr '[:upper:]' '[:lower:]')
machine=$(uname -m)
place=$directory/${system/darwin/macos}-${machine/arm64/aarch64}
mkdir -p "$place"
# Under another name first: a process that has the old file mapped keeps it.
cp "$library" "$place/library.new"
mv "$place/library.new" "$place/${library##*/}"
