#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Call cycles of source files: at most 3 files of the library or of a backend call each other in a cycle. The
# calls are the undefined and defined symbols of the objects in the build tree, and calls of the inline functions of
# headers. An inline function is part of the file that has the name of its header. Planted calls prove first that
# tests/policy/cycles.awk and inlines.awk find a cycle.
rules=$(cd "$srcdir" && pwd)/tests/policy/cycles.awk
inlines=$(cd "$srcdir" && pwd)/tests/policy/inlines.awk
awk=${AWK:-awk}
nm=${NM:-nm}
tmp=tests/cycles.tmp
trap 'rm -rf $tmp.*' EXIT
failed=0
skip() { echo "SKIP: $*"; exit 77; }
command -v "${nm%% *}" > /dev/null || skip "no nm"

# calls CALLER SYMBOL FILE: CALLER needs a symbol that FILE defines, as nm prints it.
calls()
{
	printf '%s:                 U %s\n%s:0000000000000000 T %s\n' "$1" "$2" "$3" "$2"
}

# found WORDS: cycles.awk prints these words ("": nothing) for the calls on the input.
found()
{
	out=$($awk -f "$rules")
	case $1,$out in
	,) return ;;
	,*) ;;
	*",$1") return ;;
	esac
	echo "cycles.awk should print \"$1\", prints \"$out\""
	: > $tmp.failed # also from the end of a pipeline
}

{ calls a.o fa b.o; calls b.o fb c.o; calls c.o fc a.o; } | found ''
{ calls a.o fa b.o; calls b.o fb c.o; calls c.o fc d.o; calls d.o fd e.o; } | found ''
{ calls a.o fa b.o; calls b.o fb c.o; calls c.o fc d.o; calls d.o fd b.o; calls d.o fe a.o; } |
	found '4 files call each other in a cycle: a.o b.o c.o d.o'
# b.o and d.o define the same symbol: each module has its own.
{ calls x_la-a.o f x_la-b.o; calls x_la-b.o g x_la-c.o; calls x_la-c.o h x_la-a.o
  calls y_la-d.o f y_la-e.o; calls y_la-e.o h y_la-d.o; } | found ''

# Four files in a cycle: b, c and d call each other, d calls an inline function of a.h and a.c calls b. If it is an
# inline function of state.h, three are left. Calls in comments and strings are none.
rm -rf $tmp.planted
mkdir -p $tmp.planted || exit 1
plant() { printf '%b\n' "$2" > "$tmp.planted/$1"; }
found_planted()
{
	{ calls a.o fb b.o; calls b.o fc c.o; calls c.o fd d.o
	  (cd $tmp.planted && $awk -f "$inlines" objects ./*.h ./*.c); } > $tmp.calls
	found "$1" < $tmp.calls
}
for file in a b c d; do
	echo "./$file $file.o"
done > $tmp.planted/objects
plant a.h 'static inline int *fa(int a)\n{\n\treturn a;\n}'
plant d.c 'int fd(void)\n{\n\treturn fa(1); /* fe() */\n}'
found_planted '4 files call each other in a cycle: a.o b.o c.o d.o'
plant d.c '/* fa() of\n * fa() */\nint fd(void)\n{\n\treturn strlen("fa(1)");\n}'
found_planted ''
plant d.c 'int fd(void)\n{\n\treturn fa(1);\n}'
mv $tmp.planted/a.h $tmp.planted/state.h
found_planted ''
plant state.h 'static inline int fa(int a)\n{\n\treturn fb(a);\n}'
found_planted '4 files call each other in a cycle: b.o c.o d.o ./state.h'

# The objects of the sources that there are now, in this build. Objects of moved sources are ignored.
for folder in base kernels device backends collectives runtime models; do
	find "$srcdir/$folder" -name '*.c' -o -name '*.k'
done | sed "s|^$srcdir/||; s/\.[ck]\$//" | while read -r source; do
	name=${source##*/}
	for object in "${source%/*}/.libs/$name.o" "${source%/*}/.libs"/*_la-"$name.o"; do
		[ -f "$object" ] && echo "$source $object"
	done
done > $tmp.objects
[ -s $tmp.objects ] || skip "no objects with position-independent code were built"
sed 's/.* //' $tmp.objects | xargs $nm -A -g > $tmp.symbols 2> /dev/null
grep -q ' T srt_coll_start$' $tmp.symbols || { echo "nm prints no symbols of the objects"; failed=1; }
objects=$PWD/$tmp.objects
for suffix in h c; do
	(cd "$srcdir" && find base kernels device backends collectives runtime models -name "*.$suffix")
done > $tmp.sources
(cd "$srcdir" && xargs $awk -f "$inlines" "$objects") < $tmp.sources > $tmp.inlines
grep -q ' T srt_comm_poisoned$' $tmp.inlines || { echo "inlines.awk finds no inline functions"; failed=1; }
$awk -f "$rules" $tmp.symbols $tmp.inlines > $tmp.cycles
[ -s $tmp.cycles ] && cat $tmp.cycles && failed=1
[ -e $tmp.failed ] && failed=1
exit $failed
