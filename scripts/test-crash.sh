#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make test-crash`: what a crash can do, in three ways; ends with lines `MUST name value bar ok|short`.
#   fault tables   every file call of an operation fails, is its process's last, or the last before a power cut with each fate of the unsynced writes
#   ckpt-chaos     an outside judge kills a training at its file operations
#   kills          SIGKILL at random moments of a real training, KILLS (1000) of them
set -uo pipefail
export CKP_SEED=${CKP_SEED-1} CKP_FAIL_EVERY=1 CKP_CHAOS_POINTS=0
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=build/test-crash.log
mkdir -p build

quiet() {
    local out
    out=$("$@" 2>&1) || { printf '%s\n' "$out" | tail -n 80; exit 1; }
}
quiet cmake --preset gcc -DCKP_PYTHON=ON
quiet cmake --build build/gcc -j "${JOBS:-$(nproc)}"
export PYTHONPATH=$PWD/build/gcc/python PATH=$PWD/build/gcc/bin:$PATH

echo "== fault tables"
tables=0
: >$log
for test in build/gcc/tests/test_*crash build/gcc/tests/test_store_{crash_objects,repair,replace}; do
    "$test" >>$log 2>&1 || { tables=$((tables + 1)); grep -A3 'ERROR' $log; }
done
sed -n 's/^POINTS \([0-9]*\)  \(.*\): .*/\1\t\2/p' $log | awk -F '\t' '{n[$2] += $1} END {for (k in n) printf "%8d  %s\n", n[k], k}' | sort -k2
points=$(sed -n 's/^POINTS \([0-9]*\) .*/\1/p' $log | awk '{n += $1} END {print n + 0}')

echo "== ckpt-chaos"
$python -m pytest -q tests/python/test_chaos.py
chaos=$?

echo "== kills"
$python tests/crash/kills.py --kills "${KILLS:-1000}"
kills=$?

verdict() { [ "$2" -le 0 ] && echo "MUST $1 $2 0 ok" || echo "MUST $1 $2 0 short"; }
echo "MUST crash_points_recovered $points 1000 $([ "$points" -ge 1000 ] && echo ok || echo short)"
verdict fault_tables_failed $tables
verdict chaos_findings $chaos
exit $((tables + chaos + kills > 0))
