# SPDX-License-Identifier: Apache-2.0
# Budgets: what plan shows, what compress makes of it, and dry runs.
make model m.safetensors 1
elements=$((2 * 9000 * 128 + 512))
bits() { python3 -c "import os, sys; b = 8 * os.stat('$1').st_size / $elements; print('$1 is within 1 % of its budget' if abs(b / $2 - 1) < .01 else b)"; }
near() { python3 -c "import json, sys; d = json.load(open('$1')); print('$1:', 'ok' if $2 else d)"; }
echo "-- plan"
ckpress plan m.safetensors --target-bits 4 >table
head -n 1 table
sed 1d table | awk 'NR <= 3 {print $1, $2, $3, $NF}'
grep -c '^file: .* bits a parameter$' table
ckpress plan m.safetensors --target-bits 4 --json >plan.json
near plan.json "d['met'] and abs(d['bits_per_param'] - 4) < .01 and len(d['tensors']) == 3 and all(t['step'] > 0 for t in d['tensors'])"
ckpress plan m.safetensors --max-error 0.05 --json >error.json
near error.json "d['met'] and .049 < d['rms_rel_error'] <= .05 and d['expected_bytes'] == 0"
files
echo "-- compress"
ckpress compress -q m.safetensors --target-bits 4 -o bits.ckp
bits bits.ckp 4
ckpress compress -q m.safetensors --target-ratio 6 -o ratio.ckp
python3 -c "import os; print(round(os.stat('m.safetensors').st_size / os.stat('ratio.ckp').st_size, 1))"
ckpress compress -q m.safetensors --max-error 0.05 -o error.ckp
ckpress info error.ckp --json >info.json
near info.json "all(.02 < t['rms_rel_error'] < .08 for t in d['errors'] if t['tensor'] != 'ln.bias')"
ckpress compress m.safetensors --target-bits 4 -o b.ckp --json 2>/dev/null >done.json
near done.json "d[0]['profile'] == 'weights' and d[0]['coded'] == 'lossy' and not d[0]['dry_run']"
ckpress plan bits.ckp --target-bits 3 --json >again.json
near again.json "d['met'] and abs(d['bits_per_param'] - 3) < .03"
echo "-- dry runs"
before=$(files)
ckpress compress -n --json m.safetensors 2>/dev/null >dry.json
ckpress compress -n --json m.safetensors --target-bits 4 2>/dev/null >dry4.json
near dry.json "d[0]['dry_run'] and d[0]['out'] == 'm.ckp' and d[0]['out_bytes'] > 0"
near dry4.json "d[0]['out_bytes'] == __import__('os').stat('b.ckp').st_size"
ckpress compress --dry-run m.safetensors 2>&1 | grep -o 'a dry run: nothing was written'
[ "$(files | grep -v dry)" = "$before" ] && echo "no file was made"
ckpress compress -q m.safetensors
near dry.json "d[0]['out_bytes'] == __import__('os').stat('m.ckp').st_size"
echo "-- budgets that cannot be met, and what makes no sense"
ckpress plan m.safetensors --target-bits 0.001 2>&1 >table2
grep -c "coarsest step" table2
ckpress compress m.safetensors -f --target-ratio 1e6 -o x.ckp 2>missed
grep nearest missed
code ckpress plan m.safetensors
code ckpress plan m.safetensors --target-bits 0
code ckpress plan m.safetensors --target-bits two
code ckpress plan m.safetensors --target-bits 2 --max-error 1
code ckpress plan m.safetensors --target-bits 2 --profile lossless
code ckpress plan m.safetensors --target-bits 2 --profile resume
code ckpress compress m.safetensors --target-bits 2 --quality 0.5
code ckpress compress m.safetensors --target-bits 2 --base m.ckp
code sh -c 'cat m.safetensors | ckpress compress -q --target-bits 2 - -o y.ckp'
code ckpress plan - --target-bits 2
code ckpress plan none --target-bits 2
code ckpress plan table --target-bits 2
