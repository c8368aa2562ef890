#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make test-full`: what `make test` runs, then every failing allocation, kill point and I/O call (there sampled),
# the whole library for arm64 under qemu-user, valgrind on base, and line coverage of src/.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
min_coverage=${MIN_COVERAGE:-90}
python=$PWD/.venv/bin/python
rc=0
export CKP_SEED=            # new test data in every process; each prints its seed

say() { printf '\n=== %s\n' "$*"; }

scripts/test.sh || rc=1

# Read by the harness: no sampling.
export CKP_FAIL_EVERY=1 CKP_KILL_EVERY=1

say "coverage, with every fault"
find build/coverage -name '*.gcda' -delete 2>/dev/null
cmake --preset coverage >/dev/null && cmake --build build/coverage -j "$jobs" >/dev/null || rc=1
ctest --test-dir build/coverage -j "$jobs" --output-on-failure || rc=1
PYTHONPATH=$PWD/build/coverage/python PATH=$PWD/build/coverage/bin:$PATH "$python" -m pytest -q tests/python tests/reference || rc=1
[ -x tests/cli/run.sh ] && { tests/cli/run.sh build/coverage/bin/ckpress || rc=1; }
# Lines that only other ISAs compile (NEON) are not counted: this build does not have them.
gcovr --root . --filter src/ --object-directory build/coverage --exclude-unreachable-branches \
    --print-summary --fail-under-line "$min_coverage" --txt build/coverage/coverage.txt || rc=1

say "arm64 under qemu"
scripts/test-arm64.sh || rc=1

say "valgrind on base"
for test in build/gcc/tests/test_base_{alloc,buf,cursor,hash}; do
    valgrind -q --error-exitcode=9 --leak-check=full "$test" >/dev/null 2>build/valgrind.log || { cat build/valgrind.log; rc=1; }
done
[ $rc = 0 ] && echo "test-full: ok" || echo "test-full: FAILED"
exit $rc
