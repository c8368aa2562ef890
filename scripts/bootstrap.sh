#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing and makes .venv. Quick when all is there.
#   scripts/bootstrap.sh [build|test|full|demo|bench]      what it is for; each includes those before it where it needs them
# Environment: TORCH (a pip requirement, default torch==2.13.0), and whatever pip itself reads (PIP_INDEX_URL ...).
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-test}
stamps=.venv/stamps

say() { printf '== %s\n' "$*"; }

# --- packages of the distribution -------------------------------------------------------------------------------------
have_package() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
have_command() { command -v "$1" >/dev/null 2>&1; }

missing=()
need_package() { have_package "$1" || missing+=("$1"); }
need_command() { have_command "$1" || missing+=("${2:-$1}"); }

# libFuzzer and the sanitizers of clang are in a package with clang's version in its name.
clang_runtime() {
    local version
    if have_command clang; then
        version=$(clang -dumpversion | cut -d. -f1)
    else
        version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\).*/\1/p' | head -n 1)
    fi
    [ -n "$version" ] && echo "libclang-rt-$version-dev"
}

collect() {
    missing=()
    need_command gcc
    need_command make
    need_command cmake
    need_command ninja ninja-build
    need_command pkg-config
    need_package libc6-dev
    need_package libzstd-dev
    need_package libxxhash-dev
    need_package libjansson-dev
    if [ "$purpose" != build ]; then
        need_package python3-dev
        need_package python3-venv
    fi
    case $purpose in test | full | bench) need_package libhtscodecs-dev ;; esac
    case $purpose in test | full | bench) need_command bible bible-kjv ;; esac
    case $purpose in
    test | full)
        need_command clang
        local runtime
        runtime=$(clang_runtime || true)
        if [ -n "$runtime" ]; then need_package "$runtime"; fi
        need_package libcmocka-dev
        ;;
    esac
    if [ "$purpose" = full ]; then
        need_command gcovr
        need_command valgrind
        need_command qemu-aarch64 qemu-user
        need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        need_package libc6-dev-arm64-cross
    fi
}

# Package lists are only asked when something may be missing.
collect
if [ ${#missing[@]} -gt 0 ]; then
    if ! have_command apt-get; then
        echo "missing, and there is no apt-get here: ${missing[*]}" >&2
        exit 1
    fi
    sudo=()
    if [ "$(id -u)" != 0 ]; then
        if ! have_command sudo; then
            echo "missing; please run as root: apt-get install ${missing[*]}" >&2
            exit 1
        fi
        sudo=(sudo)
    fi
    say "apt-get update"
    "${sudo[@]}" apt-get update -q
    collect # the name of clang's runtime package is known now
    say "apt-get install ${missing[*]}"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
[ "$purpose" = build ] && exit 0

# --- .venv ------------------------------------------------------------------------------------------------------------
# A stamp holds the hash of the list that it was made from.
fresh() { [ -f "$stamps/$1" ] && [ "$(cat "$stamps/$1")" = "$2" ]; }

if [ ! -x .venv/bin/python ]; then
    say "python3 -m venv .venv"
    rm -rf .venv
    python3 -m venv .venv
fi
mkdir -p "$stamps"
torch=${TORCH:-torch==2.13.0}
if ! fresh torch "$torch"; then
    say "pip install $torch"
    .venv/bin/pip install -q --disable-pip-version-check "$torch"
    echo "$torch" >"$stamps/torch"
fi
install_list() { # name of the stamp, requirements file
    local hash
    hash=$(sha256sum <"$2")
    if ! fresh "$1" "$hash"; then
        say "pip install -r $2"
        .venv/bin/pip install -q --disable-pip-version-check -r "$2"
        echo "$hash" >"$stamps/$1"
    fi
}
install_list base scripts/requirements.txt
if [ "$purpose" = test ] || [ "$purpose" = full ]; then
    install_list reference tests/reference/requirements.txt
    install_list stores tests/python/requirements.txt
fi
if [ "$purpose" = bench ] && [ -f bench/requirements.txt ]; then
    install_list bench bench/requirements.txt
fi
exit 0
