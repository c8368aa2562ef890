# SPDX-License-Identifier: Apache-2.0
# --json is JSON, whatever the names.
make tricky t.safetensors
cp t.safetensors $'odd "name"\xff.safetensors'
for command in "compress -q --json" "compress -qf --json"; do ckpress $command *.safetensors >$(echo $command | tr -d ' ').json; done
ckpress decompress -qf --json t.ckp -o t2.safetensors >decompress.json
ckpress info --json t.ckp >info.json
ckpress ls --json t.ckp >ls.json
ckpress verify --json --decode t.ckp >verify.json
head -c 500 t.ckp >cut.ckp
ckpress verify --json cut.ckp >cut.json || echo "exit $?"
ckpress salvage -q --json cut.ckp >salvage.json || echo "exit $?"
python3 - <<'P'
import glob, json
docs = {p[:-5]: json.load(open(p, encoding="utf-8")) for p in sorted(glob.glob("*.json"))}
for name, doc in docs.items():
    keys = sorted(doc) if isinstance(doc, dict) else sorted(doc[0]) if doc else []
    print(name, type(doc).__name__, len(doc), " ".join(keys))
for t in docs["ls"]:
    print(json.dumps([t["name"], t["dtype"], t["shape"], t["elements"], t["raw_bytes"], t["lossy"]]))
print(docs["cut"][0]["whole"], docs["cut"][0]["findings"][0]["status"])
P
