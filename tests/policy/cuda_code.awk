# SPDX-License-Identifier: BSD-3-Clause
#
# PTX of the portable kernels (test_dialect.sh) after the kernels' files: MAP kernels, and KERNEL_ELEMENTWISE or _DENSE that
# name their tensors in loops, have vector accesses, and no kernel has local memory but sums over rows and gradients of
# heads that share a head of keys, for their trees, coo_sort, for a copy of its arguments, and tiles of products, for the
# sums of their blocks. Exit status 1 with what is wrong.
FILENAME ~ /\.k$/ && /^(MAP|KERNEL(_ELEMENTWISE|_DENSE|_COLUMNS)?)\(/ {
	name = $0
	sub(/^[A-Z_]*\(([0-9]+, *)?/, "", name)
	sub(/,.*/, "", name)
	is_columns[name] = /^KERNEL_COLUMNS/
	is_wide = /^KERNEL_(ELEMENTWISE|DENSE)/
	if (/^MAP/)
		has_windows[name] = 1
}
FNR == 1 { is_wide = 0 }
FILENAME ~ /\.k$/ && is_wide && /^\t.*(FOR_[A-Z_]*_IN|K_GLU(_BACKWARD)?)\(/ { has_windows[name] = 1 }
/^\.visible \.entry/ || /^\.entry/ {
	entry = $0
	sub(/.*k_/, "", entry)
	sub(/_(f32|f16|bf16)\(.*/, "", entry)
	nentries++
}
/\.local .*__local_depot/ && !is_columns[entry] && entry !~ /^(coo_sort|attention_backward_kv|gpu_heads|matmul_[0-9]+x[0-9]+)$/ {
	print entry ": its variables are in local memory"
	bad = 1
}
/(ld|st)\.global\.v4/ { nvectors[entry]++ }
END {
	for (name in has_windows) {
		n++
		if (!nvectors[name]) {
			print name ": no access of 16 bytes"
			bad = 1
		}
	}
	if (n < 30 || nentries < n) {
		print "only " n + 0 " such kernels and " nentries + 0 " entries were found"
		bad = 1
	}
	exit bad
}
