# SPDX-License-Identifier: Apache-2.0
# Where outputs go, which clash, and what killed processes leave beside them.
mkdir a b d
make tricky a/x.safetensors
cp a/x.safetensors b/x.safetensors
cp a/x.safetensors x.safetensors
cp a/x.safetensors x.bin
echo "-- clashes"
code ckpress compress a/x.safetensors b/x.safetensors -o d
code ckpress compress x.safetensors ./x.bin
code ckpress compress x.safetensors a/../x.safetensors
files | grep ckp || echo "nothing was written"
echo "-- into a directory"
code ckpress compress -q a/x.safetensors -o d
code ckpress compress -q b/x.safetensors -o d/
ckpress compress -q a/x.safetensors && ckpress compress -q b/x.safetensors -o y.ckp
code ckpress decompress -q a/x.ckp y.ckp -o d
same d/y.safetensors b/x.safetensors
code ckpress compress -q a/x.safetensors -o none/
code ckpress compress -q a/x.safetensors b/x.safetensors -o one.ckp
code sh -c 'cat x.bin | ckpress compress - -o d'
code ckpress extract -q y.ckp f8 -o d
files d
echo "-- names that are none"
code ckpress compress ""
code ckpress decompress y.ckp -o ""
code ckpress info y.ckp --base ""
code ckpress compress y.ckp
code ckpress compress d
code ckpress compress x.bin -o /proc/x.ckp
code ckpress extract y.ckp f8 -o /dev/null -f
echo "-- killed in the middle"
make model m.safetensors
mkfifo pipe
mkdir out
ckpress compress pipe -o out/m.ckp 2>/dev/null &
pid=$!
exec 3>pipe
head -c 5000000 m.safetensors >&3
for _ in $(seq 100); do [ -n "$(files out)" ] && break; sleep 0.05; done
# a living writer's file stays
ckpress compress -q x.bin -o out/other.ckp
files out | grep -c '^\.tmp-'
kill -KILL $pid
exec 3>&-
wait $pid 2>/dev/null || true
files out | grep -c '^\.tmp-'
# so does what only looks like one
touch out/.tmp-1-x out/.tmp-99999999-0000000000000000-m.ckp
ckpress compress -q x.bin -o out/x.ckp
files out
