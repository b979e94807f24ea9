#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/porting.md has every slot of device/backend.h, as required or optional as it is there; the toy
# backend fills the required ones and no other.
awk=${AWK:-awk}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$srcdir" || exit 1
failed=0

$awk -f tests/policy/slots.awk device/backend.h | sort > "$tmp/contract"
$awk -f tests/policy/slots.awk docs/porting.md | sort > "$tmp/page"
[ "$(wc -l < "$tmp/contract")" -ge 40 ] || { echo "only these slots were found:"; cat "$tmp/contract"; failed=1; }
diff "$tmp/contract" "$tmp/page" > "$tmp/diff" || {
	echo "device/backend.h (<) and docs/porting.md (>) differ:"
	grep '^[<>]' "$tmp/diff"
	failed=1
}

sed -n 's/ required$//p' "$tmp/contract" > "$tmp/required"
for f in tests/fakes/backend_toy/*.c; do
	$awk '/^const srt_backend_.*_ops_t toy_.* = \{/ { p = 1; next } /^\};/ { p = 0 }
		p && match($0, /\.[a-z_]+ = /) { print substr($0, RSTART + 1, RLENGTH - 4) }' "$f"
done | sort > "$tmp/toy"
diff "$tmp/required" "$tmp/toy" > "$tmp/diff" || {
	echo "required slots (<) and those that the toy backend fills (>) differ:"
	grep '^[<>]' "$tmp/diff"
	failed=1
}
exit $failed
