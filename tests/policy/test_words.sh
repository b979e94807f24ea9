#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Comments, messages and documents do without words that have to be read twice. The words are in words.awk, with what
# to write instead and the uses that are allowed; each word is proven to be refused by an injected line first.
rules=$(cd "$srcdir" && pwd)/tests/policy/words.awk
awk=${AWK:-awk}
failed=0

dir=tests/words.tmp
rm -rf $dir
mkdir -p $dir || exit 1

# inject FILE LINE WORD: a file that ends with this line is refused for this word, or for none if WORD is empty.
inject()
{
	case $1 in */*) mkdir -p "$dir/${1%/*}" ;; esac
	printf 'One line.\n%b\n' "$2" > "$dir/$1"
	out=$(cd $dir && $awk -f "$rules" "$1" 2>&1)
	case $3,$out in
	,) return 0 ;;
	,*) ;;
	*",$1:"[234]": \"$3\": write "*) return 0 ;;
	esac
	echo "$1: \"$2\" should give \"$3\", gives \"$out\""
	failed=1
}

inject base/a.c '/* The element behind the last. */' behind
inject README.md 'Beside them' beside
inject kernels/a.k ' * -0 stands for +0 */' stands
inject docs/a.md 'Whoever comes first, waits.' whoever
inject base/a.c '	fail("a thread of its own");' 'of its own'
inject base/a.h '/*\n * Threads of their\n * own. */' 'of their own'
inject base/a.c 'log("a copy of "\n    "its own");' 'of its own'
inject m4/a.m4 '# likewise: x' likewise
inject tests/a.sh 'echo "a step is under\\\nway"' 'under way'
inject a.py '"""A lease."""' lease
inject a.mk '# leases' leases
inject a.cu "// the vendor's library" vendor
inject a.cl '/* vendors */' vendors
inject a.c '/* dawdle */' dawdle
inject a.awk '# desk' desk
inject a.c 'release(CL_DEVICE_VENDOR, its_own); /* Weigh it understands besides. */' ''
inject quickstart 'ls /etc/OpenCL/vendors/*.icd' ''
inject NEWS 'Renamed: SHARDRT_COLLECTIVES=vendor' ''
inject README.md 'SHARDRT_COLLECTIVES=vendor' vendor
inject base/a.c '/* The same of all ranks. */' 'The same'
inject base/a.h '\t/* Of a unit. */' Of
inject kernels/a.k 'int a; /* And back, rounded. */' And
inject include/a.h '/**\n * As the engine has it.\n */' As
inject a.cc '/**\n * Its name.\n */' Its
inject a.cu '/* But not here. */' But
inject a.cl '/* Those of a group. */' Those
inject base/a.c '/** As srt_file_open(), and more. */\n/* Ofthe */ puts("/* Of a unit. */");' ''
inject base/a.c '/* A text.\n * Of one line. */' ''
rm -rf $dir

files=$(grep -E '^(include|base|kernels|device|backends|collectives|runtime|models|tools|tests|bench|examples|scripts)/.*(\.([chk]|cc|hpp|cl|cu|sh|awk|py|mk|def|in|md|1)|/[^.]*)$|^m4/srt_.*\.m4$|^(configure\.ac|Makefile\.am|README\.md|NEWS|quickstart|\.ci/run)$' tests/sources.txt | grep -v '^tests/fuzz/corpus$')
[ -n "$files" ] || { echo "tests/sources.txt has no text"; exit 1; }
# shellcheck disable=SC2086
out=$(cd "$srcdir" && $awk -f "$rules" $files docs/*.md) || failed=1
[ -z "$out" ] || { echo "$out"; failed=1; }
exit $failed
