# SPDX-License-Identifier: Apache-2.0
# Pruning a run: what goes, what a dry run says, what is refused.
train run 150
hide() { sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/ +[0-9.]+ k?B/ SIZE/g; s/, [0-9.]+ k?B/, SIZE/g'; }
steps() { ckpress ls run --json | python3 -c 'import json, sys; print([e["step"] for e in json.load(sys.stdin)])'; }
steps
code ckpress prune run --keep-last 1 -n 2>&1 | hide
steps
ckpress prune run --keep-last 2 --keep-every 60 --json -n | python3 -c 'import json, sys; print([(e["step"], e["fate"]) for e in json.load(sys.stdin)])'
fates() { ckpress prune run "$@" --json -n | python3 -c 'import json, sys; print([e["fate"] for e in json.load(sys.stdin)])'; }
[ "$(fates --keep-best loss:max:2 --keep-best loss)" = "$(fates --keep-best loss)" ] && echo "of two the last counts"
[ "$(fates --keep-best loss:max)" != "$(fates --keep-best loss)" ] && echo "the highest is another"
code ckpress prune run --keep-best loss:1 2>&1 | hide | tail -n 1
steps
code ckpress verify run --decode
ckpress prune run --max-bytes 1K -n 2>&1 | grep 'more than'
code ckpress prune run --max-bytes 1K -q
steps
echo "-- refused"
code ckpress prune run
code ckpress prune run@150 --keep-last 1
code ckpress prune nothing --keep-last 1
code ckpress prune run --keep-last 0
code ckpress prune run --keep-every x
code ckpress prune run --keep-best :max
code ckpress prune run --max-bytes 10X
