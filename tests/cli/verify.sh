# SPDX-License-Identifier: Apache-2.0
# How much of a run is checked: structure alone, all that is stored, a sample, as much as the time allows; and what is told of damage.
hide() { sed -E 's/-[0-9a-f]{8}\//-X\//; s/hash [0-9a-f]{16}/hash N/; s/found [0-9a-f]{16}/found N/; s/at byte [0-9]+/at byte N/'; }
train run 60
code ckpress verify run
code ckpress verify run --data
code ckpress verify --decode run run@30
echo "-- a sample"
ckpress verify run --data=20% --seed 7 --json >a.json
ckpress verify run --data=0.2 --seed 7 --json >b.json
ckpress verify run --data=0.2 --seed 8 --json >c.json
same a.json b.json
python3 - <<'P'
import json
a, c = json.load(open("a.json"))[0], json.load(open("c.json"))[0]
print(a["seed"], c["seed"], a["share"], a["level"], a["whole"], a["checkpoints"] == a["checkpoints_looked_at"] == a["checkpoints_whole"])
print(0 < a["chunks"] < 40, 0 < a["bytes"] < a["stored_bytes"] / 2, c["chunks"] > 0)
P
code ckpress verify run --data=50% --seed 7 | sed -E 's/[0-9.]+ ([kM]?B)/N \1/g; s/\([0-9.]+ %\)/(P)/; s/^(ckpress: note: )[0-9]+ chunks/\1N chunks/'
ckpress verify run --data=10% 2>&1 | grep -c -- '--seed [0-9]* takes'
echo "-- no time"
code ckpress verify run --data --max-time 0.000001 | sed -E 's/of [0-9.]+ [kM]?B/of N/'
code ckpress verify run --data --max-time 5m
quiet_code ckpress verify run --decode=5%
echo "-- damage is told chunk by chunk, once, and the rest is checked"
key=$(echo run/step-00000010-*/shard-00000-of-00001.ckp)
newest=$(echo run/step-00000060-*/shard-00000-of-00001.ckp)
python3 - "$key" "$newest" <<'P'
import os, sys
for path in sys.argv[1:]:
    with open(path, "r+b") as f:
        for share in (0.5, 0.6):
            f.seek(int(os.path.getsize(path) * share))
            byte = f.read(1)[0]
            f.seek(-1, 1)
            f.write(bytes([byte ^ 8]))
P
code ckpress verify run
ckpress verify run --data >out 2>err || echo "exit $?"
ckpress verify run --decode >out2 2>err2 || echo "exit $?"
cat out
grep -c "step-00000060-.*chunk.*at byte" err | sed 's/^[1-9]$/some/'
grep -c "step-00000010-.*chunk.*at byte" err | sed 's/^[1-9]$/some/'
grep -v 'chunk [0-9]*:' err
sort err | uniq -d
sort err2 | uniq -d
{ ckpress verify run --data --json 2>/dev/null || true; } | python3 -c 'import json, sys; d = json.load(sys.stdin)[0]; f = d["findings"]; print(d["checkpoints_whole"], all(x["file"] and x["tensor"] and x["offset"] > 0 for x in f), sorted({x["status"] for x in f}))'
echo "-- usage"
for bad in --data=0 --data=101% --data=x --decode=5x --max-time=0 --max-time=5x --seed=-1; do quiet_code ckpress verify run $bad; done
