# SPDX-License-Identifier: Apache-2.0
# Copying a run: whole, in part, again; what a dry run says; what is refused.
train run 60
hide() { sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/ +[0-9.]+ k?B/ SIZE/g; s/, [0-9.]+ k?B/, SIZE/g; s/[0-9a-f]{32}/HASH/g'; }
steps() { ckpress ls "$1" --json | python3 -c 'import json, sys; print([e["step"] for e in json.load(sys.stdin)])'; }
equal() { (cd "$1" && find . -path './step-*' -type f | sort | xargs cksum) | cmp - <(cd "$2" && find . -path './step-*' -type f | sort | xargs cksum) && echo "$1 and $2 are equal"; }
echo "-- in part"
code ckpress cp run@30 part -n 2>&1 | hide
ls
code ckpress cp run@30 part 2>&1 | hide
steps part
code ckpress cp run part --step 10 --newest -v 2>&1 | hide
steps part
echo "-- whole"
code ckpress cp run kept 2>&1 | hide
equal run kept
code ckpress verify kept --decode
ckpress cp run kept --json | python3 -c 'import json, sys; print({e["fate"] for e in json.load(sys.stdin)})'
ckpress prune kept --keep-last 1 -q
ckpress decompress kept -o a.safetensors -q && ckpress decompress run -o b.safetensors -q && same a.safetensors b.safetensors
echo "-- it goes on by itself"
train run 80
ckpress cp run kept -q
train kept 90
code ckpress cp run kept 2>&1 | hide
train run 90
code ckpress cp run kept 2>&1 | hide
code ckpress cp kept run 2>&1 | hide
echo "-- refused"
train stranger 10
code ckpress cp run stranger
code ckpress cp run run/copy
code ckpress cp run ./run
code ckpress cp run@77 nothing
code ckpress cp run nothing --step x
code ckpress cp nothing kept
code ckpress cp run
code ckpress cp run -
files . | grep -c nothing || true
mkdir full && touch full/x && code ckpress cp run full
files full
echo "-- damage"
flip run/step-00000020-*/shard* 400
code ckpress cp run left -v 2>&1 | hide
steps left
code ckpress cp s3://bucket/run fresh
code ckpress cp run s3://bucket/run
ls -d s3: 2>/dev/null || echo "no directory was made of a URL"
echo "-- stopped: what was copied by then stays"
train many 600
for try in $(seq 50); do
    rm -rf cut
    rc=0
    ckpress cp many cut -q 2>err &
    pid=$!
    until [ -n "$(ls -d cut/step-* 2>/dev/null)" ] || ! kill -0 $pid 2>/dev/null; do :; done
    kill -TERM $pid 2>/dev/null || true
    wait $pid || rc=$?
    [ $rc = 0 ] || break
done
cat err
echo "exit $rc"
code ckpress cp many cut -q
equal many cut
