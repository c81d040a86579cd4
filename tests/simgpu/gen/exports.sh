#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh NM OUTPUT OBJECT...: the sorted table of every cu... function that the objects define.
set -e
nm=$1
out=$2
shift 2
LC_ALL=C
export LC_ALL
names=$("$nm" --defined-only "$@" | awk '$2 == "T" && $3 ~ /^cu[A-Z]/ { print $3 }' | sort -u)
{
	echo '/* written by exports.sh */'
	for n in $names; do
		echo "int $n(void);"
	done
	echo 'struct export { const char *name; void *fn; };'
	echo 'extern const struct export sg_exports[]; extern const unsigned int sg_export_count;'
	echo 'const struct export sg_exports[] = {'
	for n in $names; do
		echo "	{ \"$n\", (void *)$n },"
	done
	echo '};'
	echo 'const unsigned int sg_export_count = sizeof(sg_exports) / sizeof(sg_exports[0]);'
} >"$out"
