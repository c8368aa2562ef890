# SPDX-License-Identifier: Apache-2.0
# What a step costs on this machine: the numbers differ, what they are of does not.
ckpress bench optim 50000 --threads 1 --json >b.json
python3 - <<'PY'
import json
b = json.load(open("b.json"))
print(b["parameters"], b["threads"], [s["bits"] for s in b["steps"]])
print(b["memcpy_seconds"] > 0 and all(s["seconds"] > 0 for s in b["steps"]))
print([s["state_bytes"] for s in b["steps"]])
PY
ckpress bench optim 4096 --threads 1 | sed -E 's/[0-9.]+ GB\/s/X GB\/s/' | awk 'NR == 1 { print } NR > 2 { print $1, $NF }'
for args in "" "foo" "optim 12" "optim x" "optim 4096 5"; do
    rc=0
    ckpress bench $args 2>err || rc=$?
    echo "$rc: $(head -n 1 err)"
done
