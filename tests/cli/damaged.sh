# SPDX-License-Identifier: Apache-2.0
# Truncated and flipped files: exit code 3, a message that names the file, and no output under any name.
make tricky t.safetensors
ckpress compress -q t.safetensors
size=$(stat -c %s t.ckp)
mkdir out
# every byte and every bit of them is the unit tests' business: here the messages, codes and files left
echo "-- cut at many lengths"
for ((n = 0; n < size; n += n < 64 || n > size - 48 ? 3 : 29)); do
    head -c "$n" t.ckp >cut.ckp
    rc=0
    ckpress decompress -q cut.ckp -o out/x.safetensors 2>err || rc=$?
    [ $rc = 3 ] || echo "cut at $n: exit $rc"
    grep -q cut.ckp err || echo "cut at $n: the file is not named: $(cat err)"
done
files out
echo "-- a bit flipped in many bytes"
flips=0 tried=0
for ((n = 0; n < size; n += n < 64 || n > size - 48 ? 3 : 29)); do
    cp t.ckp flip.ckp
    flip flip.ckp "$n"
    tried=$((tried + 1))
    rc=0
    ckpress decompress -q flip.ckp -o out/x.safetensors 2>err || rc=$?
    case $rc in 3 | 4) flips=$((flips + 1)) ;; *) echo "flip at $n: exit $rc" ;; esac
done
[ $flips = $tried ] && echo "each was noticed"
files out
echo "-- in a large file"
make model m.safetensors
ckpress compress -q m.safetensors
flip m.ckp 1000000
code ckpress verify --structure m.ckp
ckpress verify --data m.ckp 2>&1 | sed -E 's/hash [0-9a-f]{16}/hash N/; s/found [0-9a-f]{16}/found N/; s/at byte [0-9]+/at byte N/' || true
quiet_code ckpress verify --data m.ckp
quiet_code ckpress verify --decode m.ckp
quiet_code ckpress decompress m.ckp -o out/m.safetensors
files out
