# SPDX-License-Identifier: Apache-2.0
# Runs: listing, describing, verifying, falling back to the newest whole checkpoint.
train run 60
hide() { sed -E 's/hash [0-9a-f]{16}/hash N/; s/found [0-9a-f]{16}/found N/; s/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/[0-9a-f]{32}/ID/g; s/20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{5} +[0-9]+ (s|min)/DATE AGE/; s/ +[0-9.]+ k?B +[0-9.]+ +[0-9.]+x/ SIZE/'; }
code ckpress ls run | hide
code ckpress info run | hide | head -n 9 | sed -E 's/(loss|step|rms|movement) [0-9.e-]+([,]|$)/\1 X\2/g'
code ckpress info run@30 | hide | head -n 2
code ckpress ls run@30 | awk '{print $1, $2, $3, $4, $5}'
code ckpress verify run --decode
ckpress extract run@30 'layer.weight[3]' -o row.npy && stat -c %s row.npy
echo "-- a checkpoint as a file"
ckpress decompress -q run@30 run
files | grep '[.]pt$'
ckpress decompress -q run@30 -o w.safetensors
ckpress extract -q run@30 layer.weight --format bin -o w.bin
python3 - <<'P'
import json
raw = open("w.safetensors", "rb").read()
n = int.from_bytes(raw[:8], "little")
a, b = json.loads(raw[8 : 8 + n])["layer.weight"]["data_offsets"]
print("the same weights" if raw[8 + n + a : 8 + n + b] == open("w.bin", "rb").read() else "other weights")
P
code ckpress decompress run@31
code ckpress verify run@30 --decode
code ckpress verify run@31
code ckpress ls run@31
ckpress ls run --json >list.json
ckpress info run --json >info.json
python3 - <<'P'
import json
l, i = json.load(open("list.json")), json.load(open("info.json"))
print([(e["step"], e["kind"], e["health"]) for e in l])
print(list(i["metrics"]), all(0 < v < 10 for v in i["metrics"].values()))
print(i["step"], i["kind"], i["profile"], sorted(i["roles"]), len(i["chain"]), i["chain_length"])
assert l[-1]["dir"] == i["dir"] and l[-1]["base"] == i["chain"][0]
assert i["stored_bytes"] == sum(r["stored_bytes"] for r in i["roles"].values()) + i["overhead_bytes"]
P
echo "-- the newest one damaged"
newest=$(echo run/step-00000060-*)
flip "$newest/shard-00000-of-00001.ckp" 300
code ckpress verify run --structure | hide
code ckpress verify run@50 --data | hide
code ckpress verify run --data | hide | sed -E 's/(offset|at byte) [0-9]+/\1 N/g'
echo "-- its manifest gone: it never was a checkpoint"
rm "$newest/manifest.json"
code ckpress ls run | hide | tail -n 4
code ckpress verify run --data
code ckpress info run | hide | sed -n '1,/tensors/p'
echo "-- a base gone"
rm -r run/step-00000010-*
code ckpress ls run | hide
quiet_code ckpress verify run
code ckpress info run | hide | sed -n '1,/tensors/p'
train empty 0
code ckpress ls empty
code ckpress info empty
echo "-- no manifest is left"
rm run/step-*/manifest.json
code ckpress verify run
ls -d run/step-*/ | wc -l
train single 10
cp -r single linked
shard=$(echo linked/step-*/shard-*.ckp)
mv "$shard" elsewhere && ln -s "$PWD/elsewhere" "$shard"
code ckpress ls linked --json | grep -c '"health": .*symbolic link, not a plain file'
rm "$shard" && mkfifo "$shard"
code ckpress ls linked --json | grep -c '"health": .*pipe, socket or device, not a plain file'
ckpress ls single --json | python3 -c 'import json, sys; print([list(e["metrics"]) for e in json.load(sys.stdin)])'
echo "-- its identity damaged"
echo junk >single/run.json
code ckpress ls single
code ckpress info single
code ckpress verify single
