# SPDX-License-Identifier: Apache-2.0
# The committed manual page and completion are what the tables give.
ckpress help --man >man.1
same man.1 "$CKP_ROOT/docs/man/ckpress.1" >/dev/null && echo "manual page: current"
ckpress help --completion >completion
same completion "$CKP_ROOT/cli/ckpress.bash" >/dev/null && echo "completion: current"
if command -v groff >/dev/null; then
    groff -man -Tascii -ww man.1 2>&1 >/dev/null | head -n 5
fi
. ./completion
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _ckpress
    echo "${COMPREPLY[*]}"
}
complete_words ckpress com
complete_words ckpress verify --d
complete_words ckpress compress --profile r
complete_words ckpress extract --format ""
touch model.ckp
complete_words ckpress info mod
