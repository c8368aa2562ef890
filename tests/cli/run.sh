#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/cli/run.sh BIN [NAME...]: runs NAME.sh in a directory of its own and compares standard output with NAME.out beside it.
# A script that lacks something prints it and ends with 77: skipped. UPDATE=1 writes the .out files anew (read the difference).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: run.sh BIN [NAME...]"; exit 2; }
bin=$(realpath "$1") || exit 2
shift
root=$(dirname "$(dirname "$here")")
export CKP_TEST_DIR=$here CKP_ROOT=$root LC_ALL=C TZ=UTC
export CKP_EXAMPLES=${CKP_EXAMPLES:-$(dirname "$(dirname "$bin")")/examples}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$bin" "$work/bin/ckpress"
export PATH=$work/bin:$PATH

names=("$@")
if [ ${#names[@]} = 0 ]; then
    for file in "$here"/*.sh; do
        case $(basename "$file" .sh) in run | lib) ;; *) names+=("$(basename "$file" .sh)") ;; esac
    done
fi
passed=0 skipped=0 failed=()
for name in "${names[@]}"; do
    mkdir "$work/$name"
    (cd "$work/$name" && exec timeout 120 bash -euo pipefail -c '. "$CKP_TEST_DIR/lib.sh"; . "$0"' "$here/$name.sh") \
        >"$work/$name.out" 2>"$work/$name.err"
    rc=$?
    [ "${UPDATE:-}" = 1 ] && [ $rc = 0 ] && cp "$work/$name.out" "$here/$name.out"
    if [ $rc = 77 ]; then
        skipped=$((skipped + 1))
        echo "skipped $name: $(tail -n 1 "$work/$name.out")"
    elif [ $rc = 0 ] && diff -u "$here/$name.out" "$work/$name.out"; then
        passed=$((passed + 1))
    else
        failed+=("$name")
        echo "FAILED  $name (exit $rc)"
        tail -n 20 "$work/$name.err"
    fi
done
echo "cli: $passed passed, $skipped skipped, ${#failed[@]} failed ${failed[*]}"
[ ${#failed[@]} = 0 ]
