# SPDX-License-Identifier: Apache-2.0
# A page about a run: its numbers are those of ls and info, damage is named, nothing is replaced unasked, names cannot break out.
train run 60 resume
code ckpress report run
code ckpress report run
code ckpress report run -f -q
files | grep '[.]html$'
mkdir out && code ckpress report run -o out && files out
ckpress report -q run -o - >piped.html && same piped.html out/run-report.html
code ckpress report run -o none/
code ckpress report run -o none/x.html | sed 's/: No such.*/: none/'
code ckpress report run@30
code ckpress report out/run-report.html
code ckpress report none | sed 's/: No such.*/: none/'
code ckpress report run --json -o -
code ckpress report run --threads 2

echo "-- the same numbers as ls and info"
ckpress report run --json >report.json
files | grep -c '[.]html$'
ckpress ls run --json >ls.json
ckpress info run@30 --json >info.json
python3 - <<'P'
import html.parser, json

r, l, i = (json.load(open(n + ".json")) for n in ("report", "ls", "info"))
same = ("dir", "step", "sequence", "kind", "stored_bytes", "raw_bytes", "params", "base", "metrics")
print("ls", all(a[k] == b[k] for a, b in zip(r["checkpoints"], l) for k in same), len(r["checkpoints"]) == len(l))
c = next(c for c in r["checkpoints"] if c["dir"] == i["dir"])
print("info", c["stored_by_role"] == {k: v["stored_bytes"] for k, v in i["roles"].items()}, c["overhead_bytes"] == i["overhead_bytes"], c["settings"] == i["settings"])
print(sorted(c["settings"]), r["damaged"], r["no_checkpoints"])


class Page(html.parser.HTMLParser):
    """Open tags must be closed in order, and nothing may be loaded or run."""

    def __init__(self):
        super().__init__()
        self.open, self.kinds, self.text = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.kinds.add(tag)
        if tag != "meta":
            self.open.append(tag)
        assert all(not k.startswith("on") and k not in ("href", "src") for k, _ in attrs), attrs

    def handle_startendtag(self, tag, attrs):
        self.kinds.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)


p = Page()
p.feed(open("piped.html", encoding="utf-8").read())
print("closed", not p.open, "script" not in p.kinds, p.kinds >= {"svg", "table", "title", "rect", "polyline"})
text = " ".join(p.text)
print(all(f"{c['stored_bytes']:,}" in text for c in r["checkpoints"]))
P

echo "-- damage"
cp -r run hurt
rm hurt/step-00000030-*/*.ckp
truncate -s 100 hurt/step-00000050-*/*.ckp
mkdir hurt/step-00000099-00000000
code ckpress report hurt -o hurt.html
grep -q 'bad base.*its base' hurt.html && grep -q 'missing shard: ' hurt.html && grep -q 'wrong length: ' hurt.html && echo named
grep -o '<bdi>step-00000099-00000000</bdi>' hurt.html
ckpress report hurt --json >hurt.json
python3 - <<'P'
import json
r = json.load(open("hurt.json"))
print(r["damaged"], [(c["step"], (c["problem"] or "ok").split(":")[0], "overhead_bytes" in c) for c in r["checkpoints"]])
print([e["dir"] for e in r["no_checkpoints"]])
P

echo "-- one, none"
train one 10
code ckpress report one -o one.html
rm -r one/step-*
code ckpress report one -f -o one.html
grep -o 'There is no checkpoint' one.html

echo "-- a name that is markup"
mv run '<b onload="x">&'\''run'
ckpress report -q '<b onload="x">&'\''run' -o odd.html
grep -c '<b onload' odd.html || true
grep -o '<h1>.*</h1>' odd.html
files | grep -c tmp || true

echo "-- a long run is thinned, and the page says so"
train long 2600 resume
ckpress report -q long
ckpress report long --json >long.json
grep -o 'show one in [0-9]*' long-report.html
python3 - <<'P'
import json, os
r = json.load(open("long.json"))
print(len(r["checkpoints"]), os.path.getsize("long-report.html") < 500_000)
print(f"{sum(c['stored_bytes'] for c in r['checkpoints']):,}" in open("long-report.html", encoding="utf-8").read())
P
