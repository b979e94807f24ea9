# SPDX-License-Identifier: BSD-3-Clause
#
# device/backend.h -> "SLOT required" or "SLOT optional", one a line: a slot is required where the
# comment before it says so. docs/porting.md -> the same from its tables. Used by tests/policy/test_porting.sh.
FILENAME ~ /\.md$/ {
	if (match($0, /^\| `[a-z_]+` \| (required|optional) \|/)) {
		split($0, cell, /[ |`]+/)
		print cell[2], cell[3]
	}
	next
}
/^typedef struct srt_backend_.*_ops \{/ { inside = 1; comment = "" }
/^\} srt_backend_.*_ops_t;/ { inside = 0 }
!inside { next }
/\/\*/ { comment = ""; in_comment = 1 }
in_comment { comment = comment $0 }
/\*\// { in_comment = 0; next }
!in_comment && match($0, /\(\*[a-z_]+\)\(/) {
	print substr($0, RSTART + 2, RLENGTH - 4), comment ~ /required/ ? "required" : "optional"
}
