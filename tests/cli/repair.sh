# SPDX-License-Identifier: Apache-2.0
# Repairing a run: what is set aside, what a dry run says, a lost identity, deletion, and what stays restorable.
train run 90
hide() { sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/  +/  /g; s/has [0-9]+ bytes, the manifest says [0-9]+/has N bytes, the manifest says M/; s/[0-9a-f]{32}/H/g'; }
names() { (cd "$1" && ls -d *step-*) | hide; }
steps() { ckpress ls "$1" --json | python3 -c 'import json, sys; print([(e["step"], e["health"]) for e in json.load(sys.stdin)])'; }
code ckpress repair run
steps run
cp -r run good
echo "-- a shard cut, a manifest damaged, the identity gone"
truncate -s -5 run/step-00000020-*/shard-*.ckp
flip "$(echo run/step-00000090-*/manifest.json)" 30
echo junk >run/run.json
code ckpress ls run
code ckpress repair run -n 2>&1 | hide
code ckpress ls run
code ckpress repair run 2>&1 | hide
names run
steps run
code ckpress verify run --decode
code ckpress repair run
cmp run/set-aside-run.json <(echo junk) && echo "the damaged run.json is kept"
[ "$(ckpress info run@10 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["content"])')" = "$(ckpress info good@10 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["content"])')" ] && echo same content
code ckpress prune run --keep-last 2 -q
train run 90
code ckpress verify run --decode
echo "-- data"
cp -r good data
flip "$(echo data/step-00000050-*/shard-*.ckp)" 400
ckpress repair data --data --json 2>/dev/null | python3 -c 'import json, sys; d = json.load(sys.stdin); print([(e["step"], e["fate"]) for e in d["checkpoints"]], d["restorable"], d["newest_step"], d["identity_rewritten"])'
echo "-- deleting"
cp -r good some
rm some/step-00000050-*/shard-*.ckp
code ckpress repair some --delete 2>&1 | hide
names some
cp -r good none
rm none/step-*/shard-*.ckp
code ckpress repair none --delete -q 2>&1 | hide
names none | head -n 2
echo "-- refused"
code ckpress repair run@30
code ckpress repair nothing
code ckpress repair run --data=5%
mkdir empty
code ckpress repair empty
files empty
