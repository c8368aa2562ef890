# SPDX-License-Identifier: Apache-2.0
# Help from the tables, and wrong command lines: exit code 1, never a partial run.
code ckpress
code ckpress --version
code ckpress help verify
code ckpress extract --help
code ckpress help nothing
code ckpress comprss x
code ckpress compress
code ckpress compress --nothing x
code ckpress compress -T
code ckpress compress -Tx x
code ckpress compress --threads=-1 x
code ckpress compress --quality 0 x
code ckpress compress --profile best x
code ckpress compress --fast=1 x
code ckpress decompress --profile resume x
code ckpress info a b
code ckpress info -
code ckpress compress a b -o c
files
