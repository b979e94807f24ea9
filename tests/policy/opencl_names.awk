# SPDX-License-Identifier: BSD-3-Clause
#
# Files of the dialect -> one line for each kernel, function or macro in them that is called like a built-in
# function of OpenCL C 1.2 (chapter 6.12). Implementations have these as macros, too, which would change a kernel's
# name: a kernel may be called so after an #undef of its name in the same file; nothing else may. Used by
# tests/policy/test_dialect.sh. Needs no more than POSIX awk.
function builtin_list(text,   n, i, names) {
	n = split(text, names, " ")
	for (i = 1; i <= n; i++)
		builtin[names[i]] = 1
}

function is_builtin(name) {
	return (name in builtin) || name ~ /^(as|convert|half|native)_/ || name ~ /^v(load|store)(_half)?[0-9]*$/
}

function complain(what, name) {
	printf "%s:%d: %s %s is called like a built-in of OpenCL C\n", FILENAME, FNR, what, name
	bad = 1
}

BEGIN {
	builtin_list("acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh")
	builtin_list("cospi erfc erf exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb")
	builtin_list("ldexp lgamma lgamma_r log log2 log10 log1p logb mad maxmag minmag modf nan nextafter pow pown")
	builtin_list("powr remainder remquo rint rootn round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi tgamma")
	builtin_list("trunc abs abs_diff add_sat hadd rhadd clamp clz mad_hi mad_sat max min mul_hi rotate sub_sat")
	builtin_list("upsample popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length")
	builtin_list("normalize fast_distance fast_length fast_normalize isequal isnotequal isgreater isgreaterequal")
	builtin_list("isless islessequal islessgreater isfinite isinf isnan isnormal isordered isunordered signbit any")
	builtin_list("all bitselect select barrier mem_fence read_mem_fence write_mem_fence prefetch")
	builtin_list("async_work_group_copy async_work_group_strided_copy wait_group_events vec_step shuffle shuffle2")
	builtin_list("printf get_work_dim get_global_size get_global_id get_local_size get_local_id get_num_groups")
	builtin_list("get_group_id get_global_offset atomic_add atomic_sub atomic_xchg atomic_inc atomic_dec")
	builtin_list("atomic_cmpxchg atomic_min atomic_max atomic_and atomic_or atomic_xor")
}
FNR == 1 { split("", protected) }
/^#[ \t]*undef[ \t]/ { sub(/^#[ \t]*undef[ \t]+/, ""); sub(/[^A-Za-z0-9_].*/, ""); protected[$0] = 1; next }
/^#[ \t]*define[ \t]/ {
	name = $0
	sub(/^#[ \t]*define[ \t]+/, "", name)
	sub(/[^A-Za-z0-9_].*/, "", name)
	if (is_builtin(name))
		complain("macro", name)
	next
}
/^(MAP|KERNEL(_ELEMENTWISE|_DENSE|_COLUMNS)?)\(/ {
	name = $0
	sub(/^[A-Z_]*\(([0-9]+,[ \t]*)?/, "", name)
	sub(/[^A-Za-z0-9_].*/, "", name)
	nkernels++
	if (is_builtin(name) && !(name in protected))
		complain("kernel", name)
	next
}
# At the start of a line, up to the first parenthesis: FN float name(, static void name(, void name(
/^[A-Za-z_][A-Za-z0-9_ \t*]*[ \t*][A-Za-z_][A-Za-z0-9_]*\(/ {
	name = $0
	sub(/\(.*/, "", name)
	sub(/.*[ \t*]/, "", name)
	nfunctions++
	if (is_builtin(name))
		complain("function", name)
}
END {
	printf "%d kernels, %d functions\n", nkernels, nfunctions
	exit bad
}
