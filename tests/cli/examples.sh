# SPDX-License-Identifier: Apache-2.0
# The examples are what people copy first: they refuse what they do not know and keep logs readable.
train run 20
code "$CKP_EXAMPLES/example_train" run 10 smal
"$CKP_EXAMPLES/example_compress_file" >said 2>&1
{ grep -c '%' said || true; }
wc -l <said
