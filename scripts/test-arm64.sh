#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Cross-builds library and unit tests for arm64 and runs them under qemu-user. The libraries come from the distribution's
# arm64 packages, unpacked below build/: nothing is installed, no foreign architecture is added to this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
work=$PWD/build/arm64-sysroot
packages=(libzstd-dev libzstd1 libjansson-dev libjansson4 libxxhash-dev libcmocka-dev libcmocka0)

if [ ! -f "$work/done" ]; then
    rm -rf "$work"
    mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root}
    apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::lists=$work/lists"
        -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
    "${apt[@]}" update >/dev/null
    (cd "$work/debs" && "${apt[@]}" download "${packages[@]}" >/dev/null)
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
    rm -rf "$work"/{lists,cache,debs}
    touch "$work/done"
fi

cmake -S . -B build/arm64 -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DCKP_ARM64_ROOT="$work/root" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -DCKP_WERROR=ON -DCKP_TEST_ENV=ON -DCKP_BENCH=OFF \
    -DCKP_EXAMPLES=OFF >/dev/null
cmake --build build/arm64 -j "$jobs"
# Kernels and everything whose bytes must be the same on every machine; the rest has nothing to do with the ISA.
ctest --test-dir build/arm64 -j "$jobs" --output-on-failure -L "${LABELS:-^(base|codec|quant|optim|state|format|engine)$}"
