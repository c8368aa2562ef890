# SPDX-License-Identifier: Apache-2.0
# For the test scripts beside it, which run with -euo pipefail in an empty directory.

# Runs a command that may fail; its messages go to standard output, then its exit code.
code() {
    local rc=0
    "$@" 2>&1 || rc=$?
    echo "exit $rc"
}

# Only the exit code.
quiet_code() {
    local rc=0
    "$@" >/dev/null 2>&1 || rc=$?
    echo "exit $rc: $*"
}

# KIND PATH [SEED]: see make.py.
make() { python3 "$CKP_TEST_DIR/make.py" "$@"; }

same() { cmp "$1" "$2" && echo "$1 and $2 are the same"; }

# Names in a directory, temporaries too.
files() { (cd "${1:-.}" && find . -mindepth 1 -printf '%P\n' | sort); }

skip() {
    echo "$1"
    exit 77
}

# A python with torch, in $torch.
need_torch() {
    for torch in "${PYTHON:-}" "$CKP_ROOT/.venv/bin/python" python3; do
        if [ -n "$torch" ] && "$torch" -c 'import torch' 2>/dev/null; then
            return 0
        fi
    done
    skip "no python with torch"
}

# RUN STEPS [PROFILE]: a run made by the example.
train() {
    [ -x "$CKP_EXAMPLES/example_train" ] || skip "no example_train beside the command"
    "$CKP_EXAMPLES/example_train" "$@" >/dev/null
}

# FILE BYTE: flips a bit.
flip() {
    python3 - "$1" "$2" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    byte = f.read(1)[0]
    f.seek(-1, 1)
    f.write(bytes([byte ^ 16]))
P
}
