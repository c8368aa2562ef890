# SPDX-License-Identifier: Apache-2.0
# Standard input and output; a terminal gets no binary data.
make tricky t.safetensors
make model m.safetensors
ckpress compress -q t.safetensors m.safetensors
for name in t m; do
    cat $name.safetensors | ckpress compress -q - | cmp - $name.ckp && echo "$name: compress - as from the file"
    cat $name.ckp | ckpress decompress -q - | cmp - $name.safetensors && echo "$name: decompress -"
    ckpress compress -q - -o $name.piped.ckp <$name.safetensors && same $name.ckp $name.piped.ckp
done
cat t.safetensors | ckpress compress - 2>&1 >/dev/null | sed 's/: [0-9.]* kB in .*/: SIZE/'
echo "-- cut pipes"
hide() { sed -E 's/[0-9]+ bytes at [0-9]+/N bytes at N/; s/\(at byte [0-9]+\)/(at byte N)/'; }
code sh -c 'head -c 1000000 m.safetensors | ckpress compress -q - >cut.out'
code sh -c 'head -c 1000000 m.ckp | ckpress decompress -q - -o cut.safetensors' | hide
code sh -c '(cat t.ckp; echo more) | ckpress decompress -q - -o more.safetensors' | hide
code sh -c 'ckpress compress -q - </dev/null >empty.out'
code sh -c 'ckpress compress --json t.safetensors -o -'
echo "-- a reader that stops early"
ckpress decompress -q m.ckp -o - 2>/dev/null | head -c 16 | wc -c || true
echo "-- full devices"
code sh -c 'ckpress decompress -q m.ckp -o - >/dev/full'
code sh -c 'ckpress ls m.ckp >/dev/full'
if command -v script >/dev/null; then
    echo "-- terminals"
    script -qec 'ckpress compress t.safetensors -o -; echo "exit $?"' /dev/null | tr -d '\r'
    script -qec 'ckpress compress -; echo "exit $?"' /dev/null | tr -d '\r'
else
    skip "no script(1)"
fi
files
