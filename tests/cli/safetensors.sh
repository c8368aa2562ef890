# SPDX-License-Identifier: Apache-2.0
# Byte-identical round trips, default names, nothing replaced unasked.
make tricky tricky.safetensors
make model model.safetensors
sha256sum tricky.safetensors model.safetensors >sums
ckpress compress -q tricky.safetensors model.safetensors
files
mkdir back
ckpress decompress -q tricky.ckp -o back/tricky.safetensors
ckpress decompress -q model.ckp -o back/model.safetensors
same tricky.safetensors back/tricky.safetensors
same model.safetensors back/model.safetensors

echo "-- nothing is replaced unasked"
code ckpress compress -q tricky.safetensors
code ckpress decompress -q tricky.ckp
sha256sum --quiet -c sums && echo unchanged
code ckpress decompress -q -f tricky.ckp
sha256sum --quiet -c sums && echo unchanged
code ckpress compress -qf tricky.ckp -o tricky.ckp

echo "-- every effort and thread count gives the same tensors"
for options in --fast --best -T1 -T5; do
    ckpress compress -q $options model.safetensors -o m$options.ckp
    ckpress decompress -q -T2 m$options.ckp -o - | cmp - model.safetensors && echo "$options: same"
done
cmp m-T1.ckp m-T5.ckp && echo "any number of threads gives the same bytes"

echo "-- other names"
cp tricky.safetensors noending
ckpress compress -q noending ./-dash.bin 2>/dev/null || cp tricky.safetensors ./-dash.bin
ckpress compress -q -- -dash.bin
files | grep -e noending -e dash

echo "-- a file says by which profile it was coded"
for profile in lossless weights resume; do
    ckpress compress -qf --profile $profile model.safetensors -o p.ckp
    ckpress info p.ckp | sed -n '1p;/^coded with/,/^$/p'
    ckpress info p.ckp --json | grep '"profile"'
done
