#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make test`: every step runs, whatever the earlier ones gave; at the end come the steps with their times and the test
# runners' own summary lines. Logs: build/test-logs/. STEPS="gcc pytest" runs only those. CKP_SEED=n draws other test data, CKP_SEED= new
# data in every process, as `make test-full` does; by default it is always the same, so that a change is judged by itself.
set -uo pipefail
export CKP_SEED=${CKP_SEED-1}
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
python=.venv/bin/python
[ -x $python ] || python=python3
fuzz_seconds=${FUZZ_SECONDS:-10}
steps=${STEPS:-layers source gcc isa clang asan fuzz plain install cli pytest}
logs=build/test-logs
mkdir -p $logs
failed=()
times=()

step() { # name, command ...
    local name=$1 start=$SECONDS rc
    shift
    case " $steps " in *" $name "*) ;; *) return 0 ;; esac
    printf '\n=== %s\n' "$name"
    "$@" 2>&1 | tee "$logs/$name.log"
    rc=${PIPESTATUS[0]}
    times+=("$(printf '%-8s %4d s  %s' "$name" $((SECONDS - start)) "$([ "$rc" = 0 ] && echo ok || echo FAILED)")")
    [ "$rc" = 0 ] || failed+=("$name")
}

# Quiet unless it fails.
quiet() {
    local out
    out=$("$@" 2>&1) || { printf '%s\n' "$out" | tail -n 80; return 1; }
}

build() { # preset, more cmake options
    quiet cmake --preset "$1" "${@:2}" && quiet cmake --build "build/$1" -j "$jobs" -- -k 0
}

unit() { build "$@" && ctest --test-dir "build/$1" -j "$jobs" --output-on-failure; }

# Whatever sits on the kernels, once per CPU level below the best: results must not change. (Tests of codec and quant run every
# level themselves.)
isa() {
    local level rc=0
    for level in scalar avx2 avx512; do
        echo "--- CKPRESS_CPU=$level"
        CKPRESS_CPU=$level ctest --test-dir build/gcc -j "$jobs" --output-on-failure -L '^(base|engine|run)$' || rc=1
    done
    return $rc
}

fuzz_one() {
    local target=$1 name=${1#fuzz_} dir=build/fuzz/run
    mkdir -p "$dir/corpus/$name" "$dir/artifacts"
    local seeds=()
    [ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
    ASAN_OPTIONS=allocator_may_return_null=1 "build/fuzz/fuzz/$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$dir/artifacts/$name-" "$dir/corpus/$name" "${seeds[@]}" \
        >"$logs/fuzz-$name.log" 2>&1
    local rc=$?
    printf '%-24s %12s runs  %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/fuzz-$name.log")" \
        "$([ $rc = 0 ] && echo ok || echo "FAILED ($logs/fuzz-$name.log)")"
    [ $rc = 0 ] || tail -n 40 "$logs/fuzz-$name.log"
    return $rc
}

fuzz() {
    build fuzz || return 1
    local target targets=() rc=0
    for target in tests/fuzz/fuzz_*.c; do
        [ -e "$target" ] && targets+=("$(basename "$target" .c)")
    done
    export -f fuzz_one
    export fuzz_seconds logs
    printf '%s\n' "${targets[@]}" | xargs -r -P "$jobs" -I{} bash -c 'fuzz_one {}' || rc=1
    echo "${#targets[@]} fuzz targets, $fuzz_seconds s each"
    return $rc
}

# No build system: one compiler call makes a library that works.
plain() {
    mkdir -p build/plain
    shopt -s nullglob
    ${CC:-cc} -std=c11 -O1 -fPIC -shared -Iinclude -Isrc src/*/*.c src/*/*/*.c -o build/plain/libckpress.so \
        -lzstd -lxxhash -ljansson -lpthread -lm && echo "plain cc: ok"
}

cli() {
    if [ -x tests/cli/run.sh ]; then
        tests/cli/run.sh build/gcc/bin/ckpress
    else
        echo "no tests/cli/run.sh"
    fi
}

python_tests() {
    quiet cmake --preset gcc -DCKP_PYTHON=ON && quiet cmake --build build/gcc -j "$jobs" || return 1
    PYTHONPATH=$PWD/build/gcc/python PATH=$PWD/build/gcc/bin:$PATH $python -m pytest -q tests/python tests/reference
}

step layers python3 tools/check_layers.py
step source python3 tools/check_source.py
step gcc unit gcc
step isa isa
step clang unit clang
step asan unit asan
step fuzz fuzz
step plain plain
step install scripts/test-install.sh build/gcc
step cli cli
step pytest python_tests

printf '\n=== steps\n'
printf '%s\n' "${times[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[*]}"
fi
printf '\n'
for name in layers source fuzz plain install cli; do
    [ -f "$logs/$name.log" ] && case " $steps " in *" $name "*) tail -n 1 "$logs/$name.log" ;; esac
done
for name in gcc isa clang asan; do
    case " $steps " in *" $name "*) sed -n 's/^\([0-9]*% tests passed.*\)/\1/p' "$logs/$name.log" | sed "s/\$/   ($name)/" ;; esac
done
case " $steps " in *" pytest "*) tail -n 1 "$logs/pytest.log" ;; esac
[ ${#failed[@]} = 0 ]
