# SPDX-License-Identifier: Apache-2.0
# Messages and exit codes by family.
make tricky t.safetensors
ckpress compress -q t.safetensors
echo "-- 2: files"
code ckpress compress nothing.safetensors
code ckpress info nothing.ckp
code ckpress ls nothing/run
code ckpress decompress t.ckp -o no/such/dir.safetensors
code ckpress decompress t.ckp -o t.safetensors
mkdir empty
code ckpress info empty
code ckpress compress empty
code ckpress extract t.ckp nothing
echo "-- 3: data"
echo "this is no tensor file, whatever its name says" >text.safetensors
code ckpress compress text.safetensors
code ckpress info text.safetensors
code ckpress decompress text.safetensors -o x
code ckpress verify text.safetensors
: >zero.ckp
code ckpress info zero.ckp
code ckpress verify -q zero.ckp
code ckpress ls s3://bucket/run
echo "-- hostile safetensors"
python3 - <<'P'
import json
def put(name, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    open(name, "wb").write((len(text) if length is None else length).to_bytes(8, "little") + text + data)
t = lambda shape, a, b: {"dtype": "F32", "shape": shape, "data_offsets": [a, b]}
put("huge.st", {"a": t([10**9, 10**9], 0, 16)}, b"x" * 16)
put("hole.st", {"a": t([1], 0, 4), "b": t([1], 8, 12)}, b"x" * 12)
put("overlap.st", {"a": t([2], 0, 8), "b": t([1], 4, 8)}, b"x" * 8)
put("twice.st", b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"x" * 8)
put("long.st", b"{}", length=2**62)
put("trailing.st", {"a": t([1], 0, 4)}, b"x" * 9)
P
for name in huge hole overlap twice long trailing; do quiet_code ckpress compress $name.st; done
files
