# SPDX-License-Identifier: Apache-2.0
# Deltas need exactly their bases.
make model 1.safetensors 1
make next 2.safetensors 1
make model other.safetensors 5
ckpress compress -q 1.safetensors other.safetensors
ckpress compress -q 2.safetensors --base 1.ckp
ckpress compress -q 1.safetensors --base 2.ckp --base 1.ckp -o 3.ckp
[ $((2 * $(stat -c %s 2.ckp))) -lt "$(stat -c %s 1.ckp)" ] && echo "the delta is less than half of its base"
ckpress decompress -q 2.ckp --base 1.ckp -o - | cmp - 2.safetensors && echo "delta: same"
ckpress decompress -q 3.ckp --base 2.ckp --base 1.ckp -o - | cmp - 1.safetensors && echo "delta of a delta: same"
ckpress decompress -q 3.ckp --base 1.ckp --base 2.ckp -o - | cmp - 1.safetensors && echo "in any order"
hide() { sed 's/[0-9a-f]\{32\}/ID/g'; }
ckpress info 3.ckp --base 2.ckp --base 1.ckp | head -n 3 | hide
code ckpress verify --decode 3.ckp --base 2.ckp --base 1.ckp
echo "-- over the base"
code ckpress compress -q 2.safetensors --base 1.ckp -o ./1.ckp -f
code ckpress decompress -q 2.ckp --base 1.ckp -o 1.ckp -f
echo "-- wrong and missing bases"
code ckpress decompress 2.ckp -o x.safetensors | hide
code ckpress decompress 2.ckp --base other.ckp -o x.safetensors | hide
code ckpress decompress 3.ckp --base 2.ckp -o x.safetensors | hide
code ckpress verify 2.ckp --base other.ckp | hide
make tricky tricky.safetensors
code ckpress compress -q tricky.safetensors --base 1.ckp
code sh -c 'cat 2.ckp | ckpress decompress -q - -o x.safetensors'
files
