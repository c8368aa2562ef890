# SPDX-License-Identifier: Apache-2.0
# PyTorch files: every tensor and plain value comes back, loadable with weights_only=True.
need_torch
cat >make_pt.py <<'P'
import collections, torch
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.ReLU(), torch.nn.Linear(160, 96, bias=False))
opt = torch.optim.AdamW(net.parameters(), betas=(0.9, 0.95))
for _ in range(5):
    opt.zero_grad()
    net(torch.randn(32, 96)).square().mean().backward()
    opt.step()
big = torch.randn(40, 50)
state = {
    "model": net.state_dict(), "optimizer": opt.state_dict(), "step": 5, "big": 2**70, "float": -0.0, "none": None, "text": "größe",
    "tuple": (1, True, b"bytes"), "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
    "ordered": collections.OrderedDict(a=1), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "bool": torch.tensor([True, False]),
    "bf16": torch.randn(33).bfloat16(), "f8": torch.randn(16).to(torch.float8_e4m3fn), "complex": torch.randn(4, dtype=torch.complex64),
    "strided": big.t()[::2], "alias": big, "same": big, "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
}
torch.save(state, "s.pt")
del state["f8"]  # torch itself cannot load it from a legacy file with weights_only
torch.save(state, "legacy.pt", _use_new_zipfile_serialization=False)
torch.save(net.state_dict(), "weights.pt")
P
cat >check_pt.py <<'P'
import sys, torch
def same(a, b, path=""):
    assert type(a) is type(b), (path, type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for k in a:
            same(a[k], b[k], f"{path}/{k}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{path}/{i}")
    else:
        assert a == b and str(a) == str(b), path
for one, other in zip(sys.argv[1::2], sys.argv[2::2]):
    a, b = torch.load(one, weights_only=True), torch.load(other, weights_only=True)
    same(a, b)
    if "alias" in b:
        assert b["alias"].data_ptr() == b["same"].data_ptr()
    print(one, "and", other, "hold the same")
P
"$torch" make_pt.py
mkdir back
for name in s legacy weights; do
    ckpress compress -q $name.pt
    ckpress decompress -q $name.ckp -o back/$name.pt
done
cat s.pt | ckpress compress -q - | ckpress decompress -q - >back/piped.pt
"$torch" check_pt.py s.pt back/s.pt legacy.pt back/legacy.pt weights.pt back/weights.pt s.pt back/piped.pt
rm weights.pt
ckpress decompress -q weights.ckp
files . | grep '^weights'
ckpress decompress -q weights.ckp -o weights.safetensors
code ckpress verify --decode s.ckp legacy.ckp weights.ckp
echo "-- lossy, with the optimizer's moments matched"
ckpress compress -q --profile resume s.pt -o lossy.ckp
ckpress info lossy.ckp --json >info.json
ckpress decompress -q lossy.ckp -o back/lossy.pt
"$torch" - <<'P'
import json, torch
i = json.load(open("info.json"))
print(i["lossy"], sorted(i["roles"]))
a, b = torch.load("s.pt", weights_only=True), torch.load("back/lossy.pt", weights_only=True)
w, x = a["model"]["0.weight"], b["model"]["0.weight"]
print("close" if (w - x).square().mean() < w.square().mean() else "far", a["optimizer"]["param_groups"] == b["optimizer"]["param_groups"])
P
echo "-- roles of a lossless file are found, not stored"
ckpress info s.ckp --json | python3 -c 'import json, sys; i = json.load(sys.stdin); print(i["params"], sorted(i["roles"]), i["roles_matched"])'
ckpress info s.ckp | grep -c 'roles by names and shapes'
ckpress ls s.ckp | awk '{print $2}' | sort | uniq -c | sort -k 2 | tr -s ' '
echo "-- weights alone"
code ckpress compress --profile weights s.pt -o w.ckp | sed -E 's/w.ckp: .*/w.ckp/; s/[0-9.]+ kB/SIZE/'
ckpress ls w.ckp >listed
{ grep -c 'exp_avg' listed || true; }
grep -c 'weight' listed
ckpress compress -q --json --profile weights -f s.pt -o w.ckp | grep -E '"(coded|profile|lossy_tensors|reason|dropped)'
ckpress decompress -q w.ckp -o back/w.pt
"$torch" - <<'P'
import torch
a, b = torch.load("s.pt", weights_only=True), torch.load("back/w.pt", weights_only=True)
print(b["optimizer"]["state"], a["optimizer"]["param_groups"] == b["optimizer"]["param_groups"], list(a) == list(b))
net = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.ReLU(), torch.nn.Linear(160, 96, bias=False))
net.load_state_dict(b["model"])
opt = torch.optim.AdamW(net.parameters())
opt.load_state_dict(b["optimizer"])  # a fresh optimizer with the groups' settings
net(torch.randn(2, 96)).sum().backward()
opt.step()
print("trains on")
P
echo "-- what is not lossy although it was asked for, and what a format has no place for"
"$torch" -c 'import torch; torch.save({"w": torch.randn(64, 64)}, "bare.pt")'
code ckpress compress --profile small bare.pt -o x.ckp | sed -E 's/x.ckp: .*/x.ckp/; s/[0-9.]+ kB/SIZE/'
"$torch" -c 'import torch; torch.save({"n": torch.arange(5), "name": "x", 3: {"lr": 0.1}, "list": [1, 2.0]}, "ints.pt")'
code ckpress compress --profile resume ints.pt | sed -E 's/ints.ckp: .*/ints.ckp/; s/[0-9.]+ kB/SIZE/'
ckpress compress -qf --json --profile weights ints.pt | grep -E '"(coded|reason)'
code ckpress decompress ints.ckp -o ints.safetensors | sed -E 's/ints.safetensors: .*/ints.safetensors/; s/[0-9.]+ kB/SIZE/'
ckpress decompress -qf --json ints.ckp -o ints.safetensors | grep values
code ckpress decompress -f weights.ckp -o weights.safetensors | sed -E 's/weights.safetensors: .*/weights.safetensors/; s/[0-9.]+ kB/SIZE/'
echo "-- pickles that ask for more"
"$torch" - <<'P'
import os, torch
class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)
torch.save({"x": Evil()}, "evil.pt")
torch.save({"x": Evil()}, "evil-legacy.pt", _use_new_zipfile_serialization=False)
P
for name in evil evil-legacy; do code ckpress compress $name.pt | sed -E 's/byte [0-9]+/byte N/g; s/: pickle[^:]*:/: pickle:/'; done
echo "-- small files that stand for huge ones"
"$torch" - <<'P'
import torch
torch.save({"x": torch.zeros(1).expand(2**50)}, "wide.pt")
torch.save({"x": torch.ones(3, 1).expand(3, 70)}, "repeated.pt")
x = torch.zeros(2)
for _ in range(16):
    x = {1: x, "1": x}
torch.save(x, "names.pt")
torch.save({1: torch.ones(2), "1": torch.zeros(2)}, "pair.pt")
P
code ckpress compress wide.pt | sed 's/byte [0-9]*/byte N/g'
ckpress compress -q repeated.pt pair.pt
ckpress decompress -q repeated.ckp -o back/repeated.pt
ckpress decompress -q pair.ckp -o back/pair.pt
"$torch" check_pt.py repeated.pt back/repeated.pt pair.pt back/pair.pt
code timeout 20 ckpress compress names.pt
echo "-- tied weights: in salvage, and from a pipe"
"$torch" - <<'P'
import torch
w = torch.randn(300, 20)
torch.save({"wte.weight": w, "lm_head.weight": w, "bias": torch.randn(20).bfloat16()}, "tied.pt")
torch.save({"z": torch.randn(6).bfloat16(), "a": torch.randn(7), "0": torch.randn(0)}, "untied.pt")
torch.save({"z": torch.randn(5).bfloat16(), "a": torch.randn(7)}, "odd.pt")
P
ckpress compress -q tied.pt untied.pt odd.pt
code ckpress salvage tied.ckp -o tied
cat untied.ckp | ckpress decompress -q - -o untied.safetensors
for name in tied odd; do code sh -c "cat $name.ckp | ckpress decompress -q - -o $name.safetensors"; done
python3 - <<'P'
import json
for name in "tied/salvaged", "untied":
    raw = open(name + ".safetensors", "rb").read()
    n = int.from_bytes(raw[:8], "little")
    print(name, {k: v["data_offsets"] for k, v in json.loads(raw[8 : 8 + n]).items()})
P
head -c 3000 s.pt >cut.pt
quiet_code ckpress compress cut.pt
ls pwned 2>/dev/null || echo "nothing was run"
