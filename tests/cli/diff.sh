# SPDX-License-Identifier: Apache-2.0
# What changed between two files or checkpoints; the figures themselves are checked against numpy by tests/python/test_diff.py.
python3 - <<'P'
import json, struct

def write(path, tensors, metadata):
    header, at, body = {"__metadata__": metadata}, 0, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    open(path, "wb").write(len(text).to_bytes(8, "little") + text + body)

f32 = lambda *v: struct.pack(f"<{len(v)}f", *v)
a = {
    "same": ("F32", [2], f32(1, 2)),
    "little": ("F32", [4], f32(1, 1, 1, 1)),
    "much": ("F32", [2], f32(3, 4)),
    "from zero": ("F32", [2], f32(0, 0)),
    "nan": ("F32", [2], f32(1, 2)),
    "flags": ("BOOL", [4], b"\x00\x01\x01\x00"),
    "counts": ("I64", [2], struct.pack("<2q", 1 << 60, -3)),
    "shape": ("F32", [2, 1], f32(1, 2)),
    "dtype": ("F32", [1], f32(1)),
    "packed": ("F4", [2, 2], b"\x12\x34"),
    "gone": ("U8", [3], b"abc"),
    "\x1b[31mred": ("U8", [1], b"a"),
}
b = {
    **a,
    "little": ("F32", [4], f32(1, 1, 1, 1.001)),
    "much": ("F32", [2], f32(6, 8)),
    "from zero": ("F32", [2], f32(0, 1)),
    "nan": ("F32", [2], f32(float("nan"), 2)),
    "flags": ("BOOL", [4], b"\x01\x01\x01\x00"),
    "counts": ("I64", [2], struct.pack("<2q", (1 << 60) + 1, -3)),
    "shape": ("F32", [1, 2], f32(1, 2)),
    "dtype": ("BF16", [2], f32(1)),
    "packed": ("F4", [2, 2], b"\x12\x35"),
    "\x1b[31mred": ("U8", [1], b"b"),
    "came": ("U8", [3], b"abc"),
}
del b["gone"]
write("a.safetensors", a, {"format": "pt", "note": "one\n"})
write("b.safetensors", b, {"format": "pt", "note": "two", "new": "x"})
P
code ckpress diff a.safetensors b.safetensors
echo "-- everything, and identical ones alone"
code ckpress diff a.safetensors b.safetensors --all | grep '^same'
cp a.safetensors c.safetensors
code ckpress diff a.safetensors c.safetensors
code ckpress diff a.safetensors c.safetensors --all | sed -n '1,6p'
echo "-- whatever kind of file"
ckpress compress -q a.safetensors b.safetensors
code ckpress diff a.ckp a.safetensors
ckpress diff a.safetensors b.safetensors --json | grep -v '"path": "[ab][.]' >1.json
ckpress diff a.ckp b.ckp --json | grep -v '"path": "[ab][.]' >2.json
same 1.json 2.json
make model m.safetensors && make next n.safetensors
ckpress compress -q m.safetensors && ckpress compress -q n.safetensors --base m.ckp
code ckpress diff m.safetensors n.safetensors >1.txt
code ckpress diff m.ckp n.ckp --base m.ckp >2.txt
sed 's/[.]safetensors/.ckp/' 1.txt | cmp - 2.txt && tail -n 6 2.txt
echo "-- exit codes"
for args in "a.safetensors c.safetensors" "a.safetensors b.safetensors"; do
    quiet_code ckpress diff $args
    quiet_code ckpress diff $args --exit-code
    quiet_code ckpress diff $args --exit-code --json
done
python3 - <<'P'
import json
d = json.load(open("1.json"))
print(d["identical"], d["counts"])
print([(t["name"], t.get("relative")) for t in d["tensors"]][:5])
print([(t["a"], t["b"]) for t in d["tensors"] if t["name"] in ("shape", "gone", "came")])
print(sorted(d["tensors"][0]), sorted(d["roles"]["weight"]))
P
echo "-- bad input"
code ckpress diff a.safetensors
code ckpress diff a.safetensors -
code ckpress diff a.safetensors none
code ckpress diff m.ckp n.ckp | sed -E 's/[0-9a-f]{32}/ID/g'
head -c 300 a.safetensors >cut.safetensors
code ckpress diff a.safetensors cut.safetensors
head -c -1 a.ckp >cut.ckp
code ckpress diff cut.ckp a.safetensors
echo "no checkpoint at all, however long it may be" >junk
code ckpress diff a.ckp junk
code ckpress diff m.ckp n.ckp --base junk
code ckpress diff a.ckp a.ckp --threads 2
echo "-- runs"
train gpt 30
train other 20 lossless
code ckpress diff gpt@10 gpt@30 | grep -e tensors: -e '^A' -e '^B' -e exit
code ckpress diff gpt gpt@30
code ckpress diff gpt@10 gpt@11
code ckpress diff gpt@10 a.ckp
ckpress diff gpt@20 gpt --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["a"], d["b"])'
shard=$(echo gpt/step-00000020-*/shard*)
flip "$shard" $(($(stat -c %s "$shard") / 2))
code ckpress diff other@20 gpt@20 | sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/[0-9a-f]{16}/N/g; s/at byte [0-9]+/at byte N/'
mkdir empty
code ckpress diff empty gpt
