# SPDX-License-Identifier: Apache-2.0
# Storing checkpoints otherwise: without old moments, as keys. What goes, what stays, what is told and refused.
hide() { sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/ +[0-9.]+ k?B/ SIZE/g; s/: SIZE in place of SIZE/: SIZE/'; }
steps() { ckpress ls "$1" --json | python3 -c 'import json, sys; print([(e["step"], e["kind"], e["health"]) for e in json.load(sys.stdin)])'; }
train run 70 resume
steps run
for step in 10 20 60; do ckpress extract run@$step layer.weight -o w$step.npy -q; done
ckpress extract run@20 layer.weight/v -o v20.npy -q
code ckpress thin run --drop-optimizer --older-than 2 -n 2>&1 | hide
code ckpress thin run --drop-optimizer --older-than 2 2>&1 | hide
steps run
ckpress ls run | awk '{print $1, $2, $3}' | sed -n '2,4p'
ckpress ls run --json | python3 -c 'import json, sys; print([e["step"] for e in json.load(sys.stdin) if e["dropped"]])'
ckpress log run | awk '/restored/ { n++ } END { print n + 0, "restores" }'
code ckpress verify run --decode
for step in 10 20 60; do ckpress extract run@$step layer.weight -o now$step.npy -q && same w$step.npy now$step.npy; done
ckpress extract run@20 layer.weight/v -o nowv20.npy -q && same v20.npy nowv20.npy
ckpress extract run@20 layer.weight/m -o - --format bin -q | tr -d '\0' | wc -c
ckpress info run@20 2>&1 | grep -i dropped
ckpress info run@20 --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["dropped"])'
ckpress info run --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["dropped"])'
code ckpress decompress run@20 -o twenty.pt 2>&1 | grep dropped
code ckpress thin run --drop-optimizer --older-than 2 -q
train run 90 resume
code ckpress verify run --decode
echo "-- rebase"
train lossless 60 lossless
steps lossless
ckpress extract lossless@30 layer.weight -o a.npy -q
code ckpress rebase lossless@20 2>&1 | hide
steps lossless
ckpress extract lossless@30 layer.weight -o b.npy -q
same a.npy b.npy
code ckpress verify lossless --decode
code ckpress prune lossless --keep-last 1 -q
code ckpress rebase run@60 2>&1 | hide
echo "-- refused"
code ckpress thin run
code ckpress thin run@20 --drop-optimizer
code ckpress thin run --drop-optimizer --older-than 0
code ckpress thin nothing --drop-optimizer
code ckpress rebase run
code ckpress rebase run@7
rm "$(ls -d run/step-00000020-*)"/shard-*.ckp
code ckpress thin run --drop-optimizer --older-than 1 2>&1 | hide | sed 's/damaged.*/damaged/'
