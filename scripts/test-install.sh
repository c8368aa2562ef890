#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs into build/install and builds and runs every example from there as a user would: pkg-config with the shared and
# with the static library, and find_package(ckpress).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/gcc}
prefix=$PWD/build/install
rm -rf "$prefix" build/install-test
mkdir -p build/install-test
cmake --install "$build" --prefix "$prefix" --component dev >/dev/null
pc=$(dirname "$(find "$prefix" -name ckpress.pc)")
export PKG_CONFIG_PATH=$pc LD_LIBRARY_PATH=$(dirname "$pc")

shopt -s nullglob
examples=(examples/*.c)
if [ ${#examples[@]} = 0 ]; then
    cat >build/install-test/version.c <<'C'
#include <ckpress/ckpress.h>
#include <string.h>
int main(void) { return strcmp(ckp_version(), CKP_VERSION_STRING) != 0; }
C
    examples=(build/install-test/version.c)
fi

run() { # program: in a directory of its own
    local dir
    dir=$(mktemp -d build/install-test/run.XXXXXX)
    (cd "$dir" && "$OLDPWD/$1" >output.txt) || { cat "$dir/output.txt"; echo "$1: failed"; exit 1; }
}

cat >build/install-test/CMakeLists.txt <<'E2'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(ckpress 0.1 REQUIRED)
foreach(file IN LISTS EXAMPLES)
  get_filename_component(name ${file} NAME_WE)
  foreach(kind ckpress ckpress_static)
    add_executable(${name}_${kind} ${file})
    target_link_libraries(${name}_${kind} PRIVATE ckpress::${kind} m)
  endforeach()
endforeach()
E2
for file in "${examples[@]}"; do
    name=$(basename "$file" .c)
    # shellcheck disable=SC2046
    cc -std=c11 "$file" -o "build/install-test/$name" $(pkg-config --cflags --libs ckpress) -lm
    run "build/install-test/$name"
    cc -std=c11 "$file" -o "build/install-test/$name-static" $(pkg-config --cflags ckpress) "$(dirname "$pc")/libckpress.a" \
        $(pkg-config --static --libs ckpress | sed 's/-lckpress//') -lm
    run "build/install-test/$name-static"
done
list=$(printf "$PWD/%s;" "${examples[@]}")
cmake -S build/install-test -B build/install-test/cmake -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="${list%;}" >/dev/null
cmake --build build/install-test/cmake >/dev/null
for file in "${examples[@]}"; do
    name=$(basename "$file" .c)
    run "build/install-test/cmake/${name}_ckpress"
    run "build/install-test/cmake/${name}_ckpress_static"
done
echo "install: ${#examples[@]} examples, each built 4 ways: ok"
