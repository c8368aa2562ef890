# SPDX-License-Identifier: Apache-2.0
# Files for other programs out of checkpoints, and runs out of such files: names, refusals, what comes back.
sizes() { sed -E 's/, [0-9.]+ [kM]?B/, SIZE/; s/ in [0-9.]+ s/ in T/'; }
make model a.safetensors 1
ckpress compress -q a.safetensors
echo "-- hf"
code ckpress export a.ckp -o hf --to hf 2>&1 | sizes
files hf
code ckpress export a.ckp -o hf --to hf
code ckpress export a.ckp -o hf --to hf -f -q --max-file 2M
files hf
python3 - <<'P'
import json, os, struct
index = json.load(open("hf/model.safetensors.index.json"))
tensors, where = {}, index["weight_map"]
for name in sorted(set(where.values())):
    raw = open("hf/" + name, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    print(name, head.pop("__metadata__"), sum(t["data_offsets"][1] - t["data_offsets"][0] for t in head.values()) <= 2_000_000 or len(head))
    for key, t in head.items():
        assert where[key] == name
        tensors[key] = (t["dtype"], t["shape"], raw[8 + n :][slice(*t["data_offsets"])])
raw = open("a.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8 : 8 + n])
head.pop("__metadata__", None)
print({k: (t["dtype"], t["shape"], raw[8 + n :][slice(*t["data_offsets"])]) for k, t in head.items()} == tensors, set(where) == set(tensors))
print(index["metadata"]["total_size"] == sum(len(t[2]) for t in tensors.values()))
P
code ckpress export a.ckp -o hf --to hf -fq
files hf | grep -v -- -of-
echo "-- a run"
train run 20
code ckpress export run -o out --to safetensors 2>&1 | sizes
ckpress export run@10 -o out --to pt --json -f | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["name"], d["kind"], d["files"], d["tensors"])'
files out
code ckpress export run -o out --to hf
code ckpress export run -o out --to hf --only nothing
(cd run && code ckpress export . -o ../out --to pt -q && files ../out)
echo "-- refused"
code ckpress export run --to pt
code ckpress export run -o out
code ckpress export run -o out --to npz
code ckpress export run@7 -o out --to pt
code ckpress export a.ckp -o a.safetensors --to pt
echo "-- import"
make next b.safetensors 1
mkdir -p s/ck-5 s/ck-12
cp a.safetensors s/ck-5/m.safetensors
cp b.safetensors s/ck-12/m.safetensors
code ckpress import s/ck-12/m.safetensors s/ck-5/m.safetensors -o imported -q
ckpress ls imported --json | python3 -c 'import json, sys; print([(e["step"], e["kind"], e["health"]) for e in json.load(sys.stdin)])'
ckpress decompress -q imported@12 -o back.safetensors
ckpress decompress -q imported@5 -o first.safetensors
same back.safetensors b.safetensors
same first.safetensors a.safetensors
code ckpress verify imported --decode
code ckpress import a.safetensors -o imported --step 20
code ckpress import b.safetensors a.safetensors -o ordered --in-order -q
ckpress ls ordered --json | python3 -c 'import json, sys; print([e["step"] for e in json.load(sys.stdin)])'
code ckpress import a.safetensors b.safetensors -o stepped --step 7 --step 9 --json | python3 -c 'import json, sys; t = sys.stdin.read(); print([(e["file"], e["step"]) for e in json.loads(t[: t.rindex("]") + 1])], t[t.rindex("]") + 2 :].strip())'
echo "-- no plain steps"
for files in "a.safetensors b.safetensors" "a.safetensors" "s/ck-5/m.safetensors s/ck-5/m.safetensors" "x1-2.pt x3-4.pt" "x1.pt x01.pt"; do code ckpress import $files -o none; done
code ckpress import a.safetensors b.safetensors -o none --step 9 --step 7
code ckpress import a.safetensors b.safetensors -o none --step 9
code ckpress import a.safetensors --in-order --step 1 -o none
code ckpress import a.safetensors
code ckpress import s/ck-5/m.safetensors s/ck-7/m.safetensors -o none
echo text >s/ck-12/m.safetensors
code ckpress import s/ck-5/m.safetensors s/ck-12/m.safetensors -o partly -q
ckpress ls partly --json | python3 -c 'import json, sys; print([(e["step"], e["health"]) for e in json.load(sys.stdin)])'
files . | grep -c '^none' || true
