# SPDX-License-Identifier: Apache-2.0
# What a cut or flipped file still holds comes out, and nothing that is wrong.
make model m.safetensors
ckpress compress -q m.safetensors
code ckpress salvage m.ckp -o whole
files whole
cat >check.py <<'P'
import json, os, sys
def load(path):
    if not os.path.exists(path):
        return {}
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in json.loads(raw[8 : 8 + n]).items() if k != "__metadata__"}
WIDTH = {"F32": 4, "BF16": 2}
whole, parts = load("m.safetensors"), 0
for name, t in load(sys.argv[1] + "/salvaged.safetensors").items():
    assert t == whole[name], name
if len(sys.argv) > 2:
    for name, t in load(sys.argv[1] + "/salvaged-parts.safetensors").items():
        base, _, where = name.rpartition("[")
        a, b = (int(x) * WIDTH[t[0]] for x in where[:-1].split(":"))
        assert t[2] == whole[base][2][a:b], name
        print(name)
print("all equal")
P
python3 check.py whole
size=$(stat -c %s m.ckp)
echo "-- cut at 99 %"
head -c $((size * 99 / 100)) m.ckp >cut.ckp
code ckpress salvage cut.ckp
ls cut.salvaged
echo "-- cut at 66 %"
head -c $((size * 66 / 100)) m.ckp >cut.ckp
code ckpress salvage -f cut.ckp -o half
files half
python3 check.py half parts
echo "-- a flipped bit costs one chunk"
cp m.ckp flip.ckp
flip flip.ckp 1000
code ckpress salvage flip.ckp -o flip
echo "-- a delta of a run, without its base and with it"
train run 20 resume
delta=$(ls run/step-00000020-*/shard-00000-of-00001.ckp) key=$(ls run/step-00000010-*/shard-00000-of-00001.ckp)
code ckpress salvage "$delta" -o alone | sed 's/step-\([0-9]*\)-[0-9a-f]*/step-\1-X/'
code ckpress salvage "$delta" --base "$key" -o based | tail -1
echo "-- RUN@STEP has its bases found"
code ckpress salvage run@20 -o found | tail -1
diff -r based found && echo "as with --base"
mkdir run/step-00000020-00000000
code ckpress salvage -q run/@20
diff -r based run@20.salvaged && echo "a save that was cut short is passed over"
rmdir run/step-00000020-00000000
mv run/step-00000010-* aside
code ckpress salvage run@20 -o lost | sed 's/step-\([0-9]*\)-[0-9a-f]*/step-\1-X/'
mv aside "run/$(basename "$(dirname "$key")")"
code ckpress salvage run@21
code ckpress salvage run
echo "-- nothing to save"
code ckpress salvage m.safetensors -o none
code ckpress salvage nothing.ckp -o none
code ckpress salvage m.ckp -o whole
