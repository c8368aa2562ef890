# SPDX-License-Identifier: Apache-2.0
# A full disk, and a directory that may not be written: exit code 2, nothing left behind.
make model m.safetensors
ckpress compress -q m.safetensors
[ "$(id -u)" = 0 ] || skip "needs root"
mkdir small locked
mount -t tmpfs -o size=1m none small 2>/dev/null || skip "cannot mount a tmpfs"
trap 'umount small' EXIT
hide() { sed 's/\.tmp-[0-9a-f]*-[0-9a-f]*-/.tmp-X-/'; }
code ckpress compress -q m.safetensors -o small/m.ckp | hide
code ckpress decompress -q m.ckp -o small/m.safetensors | hide
code ckpress extract m.ckp wte.weight -o small/w.npy | hide
code ckpress salvage m.ckp -q -o small/saved | hide
files small
echo "-- a directory that may not be written"
chmod 555 locked
chmod 755 . && chmod 644 m.ckp m.safetensors
if command -v setpriv >/dev/null && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$(command -v ckpress)" -a -r m.ckp; then
    as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
    code as_nobody ckpress compress -q m.safetensors -o locked/m.ckp | hide
    code as_nobody ckpress extract m.ckp wte.weight -o locked/w.npy
else
    mount --bind locked locked && mount -o remount,bind,ro locked
    trap 'umount small locked' EXIT
    code ckpress compress -q m.safetensors -o locked/m.ckp | hide | sed 's/Read-only file system/Permission denied/'
    code ckpress extract m.ckp wte.weight -o locked/w.npy | sed 's/Read-only file system/Permission denied/'
fi
files locked
