# SPDX-License-Identifier: Apache-2.0
# How a run came about: kinds and bases, times, restores, what is gone, damaged or was cut short. Rollbacks: tests/python/test_log.py.
hide() { sed -E 's/step-([0-9]+)-[0-9a-f]{8}/step-\1-X/g; s/20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8}/DATE/; s/ [0-9]+ s$/ AFTER/; s/loss [0-9.e-]+/loss X/; s/says [0-9]+/says N/; s/ +[0-9.]+ k?B +[0-9.]+x/ SIZE/'; }
sum() { (cd "$1" && find . -type f -exec sha256sum {} + | sort | sha256sum); }
train run 60 resume
before=$(sum run)
code ckpress log run | hide
ckpress diff run@10 run >/dev/null && [ "$before" = "$(sum run)" ] && echo "reading changed nothing"
echo "-- restored, and gone on"
train run 20 resume
code ckpress log run | hide | tail -n 6
echo "-- newest first"
ckpress log run --reverse | hide | sed -n '1,5p'
ckpress log run | grep -c loss
ckpress log run --reverse >reverse && [ "$(ckpress log run | awk '/key|delta/ {print $1}')" = "$(awk '/key|delta/ {print $1}' reverse | tac)" ] && echo "the other way round"
echo "-- what retention took"
cp -r run kept
ckpress prune -q kept --keep-last 1
code ckpress log kept | hide
echo "-- damage, and a save that was cut short"
cp -r run hurt
rm -r hurt/step-00000010-*
truncate -s 100 hurt/step-00000060-*/*.ckp
mkdir hurt/step-00000099-00000000
code ckpress log hurt | hide
ckpress log hurt | awk 'length > 100' | wc -l
echo "-- as JSON: the same as report and ls, and what only the order tells"
ckpress log hurt --json >log.json
ckpress report hurt --json >report.json
ckpress ls hurt --json >ls.json
python3 - <<'P'
import json
l, r, s = (json.load(open(n + ".json")) for n in ("log", "report", "ls"))
own = ("exact", "seconds_after", "gone_before", "restored", "anew", "back")
print([{k: v for k, v in c.items() if k not in own} for c in l["checkpoints"]] == r["checkpoints"], l["no_checkpoints"] == r["no_checkpoints"], l["damaged"])
print([c["step"] for c in l["checkpoints"]] == [e["step"] for e in s if e["kind"]])
for key in own[2:]:
    print(key, [c[key] for c in l["checkpoints"]])
print(l["checkpoints"][0]["seconds_after"], all(0 <= c["seconds_after"] < 100 for c in l["checkpoints"][1:]))
P
ckpress log hurt --json --reverse | python3 -c 'import json, sys; print([c["step"] for c in json.load(sys.stdin)["checkpoints"]])'
echo "-- nothing, and no run"
train empty 0
code ckpress log empty
mkdir bare
code ckpress log bare
code ckpress log none
code ckpress log run@10
code ckpress log log.json | sed 's/: Not a directory.*/: not a directory/'
code ckpress log run other
code ckpress log run --base x
echo junk >kept/run.json
code ckpress log kept
