# SPDX-License-Identifier: Apache-2.0
# A signal in the middle: 128 + its number, nothing half-written; and the progress bar.
make model m.safetensors
mkfifo pipe
mkdir out
ckpress compress pipe -o out/m.ckp 2>err &
pid=$!
exec 3>pipe
head -c 5000000 m.safetensors >&3
for _ in $(seq 100); do [ -n "$(files out)" ] && break; sleep 0.05; done
kill -TERM $pid
{ tail -c +5000001 m.safetensors >&3; } 2>/dev/null || true
exec 3>&-
rc=0
wait $pid || rc=$?
cat err
echo "exit $rc"
files out
echo "-- the bar"
ckpress compress --progress m.safetensors 2>&1 | tr '\r' '\n' | grep -c 'm.safetensors  \[#*\.*\] *[0-9]* %' | sed 's/^[1-9][0-9]*$/shown/'
ckpress compress -q --progress -f m.safetensors
ckpress decompress -f m.ckp -o x 2>&1 | sed -E 's/[0-9.]+ (k|M)?B/SIZE/g; s/\(.*%\)/(RATIO)/; s/in .*/in TIME/'
echo "-- waiting for a pipe that says nothing"
mkfifo silent
for sig in INT TERM; do
    code timeout -s $sig -k 20 1.5 ckpress compress silent -o out/never.ckp
    sleep 4 | code timeout -s $sig -k 20 1.5 ckpress compress - -o out/never.ckp
done 2>&1
{ head -c 5000000 m.safetensors; sleep 4; } 2>/dev/null | code timeout -s INT -k 20 1 ckpress compress - -o out/never.ckp
ckpress compress -q m.safetensors -o sent.ckp
{ head -c 1000000 sent.ckp; sleep 4; } 2>/dev/null | code timeout -s INT -k 20 1 ckpress decompress - -o out/never
echo "-- one request that is sent twice, as timeout(1) does, is still one"
clean=0
for i in $(seq 40); do
    ckpress compress silent -o out/never.ckp 2>err &
    pid=$!
    for _ in $(seq 400); do grep -q '^SigCgt:.*[4567cdef]...$' /proc/$pid/status && break; sleep 0.01; done     # SIGTERM is caught
    kill -TERM $pid
    kill -TERM $pid 2>/dev/null || true      # it may have ended
    rc=0
    wait $pid || rc=$?
    [ $rc = 143 ] && grep -q '; nothing was written' err && clean=$((clean + 1))
done
echo "$clean clean ends"
echo "-- between two files: the first one's summary finds a full pipe"
mkdir two
cp m.safetensors two/a.safetensors
cp m.safetensors two/b.safetensors
mkfifo full
exec 4<>full
python3 -c 'import os; os.set_blocking(4, False)
try:
    while os.write(4, b"." * 4096): pass
except BlockingIOError: os.set_blocking(4, True)'
ckpress compress two/a.safetensors two/b.safetensors 2>&4 &
pid=$!
for _ in $(seq 400); do [ -e two/a.ckp ] && break; sleep 0.05; done
sleep 0.5
kill -TERM $pid
cat <&4 >said &
cat=$!
rc=0
wait $pid || rc=$?
echo "exit $rc"
for _ in $(seq 400); do grep -q 'stopped by a signal' said && break; sleep 0.05; done
kill $cat
exec 4>&-
tr -d '.' <said | grep -o 'stopped by a signal before two/b' || true
files two
files out
code timeout -k 20 5 ckpress info silent
code timeout -k 20 5 ckpress verify silent
code bash -c 'ulimit -f 1000; exec ckpress compress -q m.safetensors -o out/limited.ckp' | sed 's/\.tmp-[0-9a-f]*-[0-9a-f]*-/.tmp-X-/'
find out -name '*.ckp' ! -name '.tmp-*'
