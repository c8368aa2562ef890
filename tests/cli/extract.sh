# SPDX-License-Identifier: Apache-2.0
# Tensors and slices against what Python reads from the original file.
make model m.safetensors
make tricky t.safetensors
ckpress compress -q m.safetensors t.safetensors
cat >check.py <<'P'
import json, struct, sys
def load(path, name):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    t = json.loads(raw[8 : 8 + n])[name]
    a, b = t["data_offsets"]
    return t["dtype"], t["shape"], raw[8 + n + a : 8 + n + b]
def rows(data, shape, width, r0, r1, c0=0, c1=None):
    c1 = shape[1] if c1 is None else c1
    return b"".join(data[(r * shape[1] + c0) * width : (r * shape[1] + c1) * width] for r in range(r0, r1))
dtype, shape, data = load("m.safetensors", "wte.weight")
assert open("rows.bin", "rb").read() == rows(data, shape, 4, 1000, 1010)
assert open("columns.bin", "rb").read() == rows(data, shape, 4, 0, 9000, 5, 9)
assert open("last.bin", "rb").read() == rows(data, shape, 4, 8999, 9000)
assert open("whole.bin", "rb").read() == data
npy = open("rows.npy", "rb").read()
n = struct.unpack("<H", npy[8:10])[0]
assert npy[:8] == b"\x93NUMPY\x01\x00" and (10 + n) % 64 == 0
head = eval(npy[10 : 10 + n])
assert head == {"descr": "<f4", "fortran_order": False, "shape": (10, 128)}, head
assert npy[10 + n :] == rows(data, shape, 4, 1000, 1010)
dtype, shape, data = load("m.safetensors", "head.weight")
assert load("head.safetensors", "head.weight") == ("BF16", [128], rows(data, shape, 2, 8000, 8001))
for i, name in enumerate(("../evil", "a[0:2]", 'größe "quoted"', "tab\tname", "scalar", "empty")):
    assert load(f"one.{i}.safetensors", name) == load("t.safetensors", name), name
print("all equal")
P
ckpress extract m.ckp 'wte.weight[1000:1010]' -o rows.bin
ckpress extract m.ckp 'wte.weight[1000:1010]' -o rows.npy
ckpress extract m.ckp 'wte.weight[:, 5:9]' -o - >columns.bin
ckpress extract m.ckp 'wte.weight[-1]' -o last.bin
ckpress extract m.ckp wte.weight --format bin -o - >whole.bin
ckpress extract m.ckp 'head.weight[8000]' -o head.safetensors
i=0
for name in ../evil 'a[0:2]' 'größe "quoted"' $'tab\tname' scalar empty; do
    ckpress extract t.ckp "$name" -o one.$i.safetensors
    i=$((i + 1))
done
PYTHONUTF8=1 python3 check.py
echo "-- default names stay here"
mkdir here && cd here
ckpress extract ../t.ckp ../evil
ckpress extract ../t.ckp nan
ckpress extract ../t.ckp f8
ckpress extract -q ../m.ckp 'wte.weight[0:2]'
ckpress extract -q ../m.ckp 'wte.weight[2:4, :3]'
ckpress extract -q ../m.ckp 'wte.weight[7]'
ckpress extract -q ../m.ckp 'head.weight[-1]'
files
cd ..
echo "-- widened"
ckpress extract m.ckp 'head.weight[8000]' --as f32 -o wide.npy
ckpress extract m.ckp 'head.weight[8000]' -o narrow.bin
ckpress extract m.ckp 'wte.weight[3]' --as f32 -o same.bin
ckpress extract m.ckp 'wte.weight[3]' -o other.bin
same same.bin other.bin
python3 - <<'P'
import json, struct
halves = bytes(range(0, 256)) * 2 + struct.pack("<8H", 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF)
text = json.dumps({"h": {"dtype": "F16", "shape": [len(halves) // 2], "data_offsets": [0, len(halves)]}}).encode()
open("h.safetensors", "wb").write(len(text).to_bytes(8, "little") + text + halves)
open("halves.bin", "wb").write(halves)
P
ckpress compress -q h.safetensors
ckpress extract h.ckp h --as f32 -o h.bin
python3 - <<'P'
import struct
npy = open("wide.npy", "rb").read()
narrow = open("narrow.bin", "rb").read()
assert b"'<f4'" in npy[:128]
assert npy[-512:] == b"".join(b"\0\0" + narrow[i : i + 2] for i in range(0, 256, 2))
halves = struct.unpack("<264e", open("halves.bin", "rb").read())
wide = struct.unpack("<264f", open("h.bin", "rb").read())
assert all(a == b or (a != a and b != b) for a, b in zip(halves, wide))
print("every value the same")
P
code ckpress extract m.ckp head.weight --as f16 -o x
code ckpress extract t.ckp f8 --as f32 -o x
echo "-- what makes no sense"
for slice in '[9000]' '[1, 2, 3]' '[0:10:2]' '[a]' '[]' '[1:2' '[::]'; do code ckpress extract m.ckp "wte.weight$slice" -o x; done
code ckpress extract m.ckp head.weight -o x.npy
code ckpress extract m.ckp ln.bias -o rows.bin
code ckpress extract m.ckp 'ln.bias[5:5]' -o none.npy
code ckpress extract m.ckp 'ln.bias[400:10000]' -o many.bin
stat -c %s many.bin
code ckpress extract t.ckp 'scalar[0]' -o x
files | grep -x x || echo "nothing was written"
echo "-- not over what it is read from"
cp m.ckp own.ckp
code ckpress extract own.ckp 'wte.weight[3]' -f --format bin -o own.ckp
cmp m.ckp own.ckp && echo "it is as it was"
