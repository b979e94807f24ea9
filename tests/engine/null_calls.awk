# SPDX-License-Identifier: BSD-3-Clause
#
# Public headers -> calls for test_null_arguments.c: each function with NULL for one pointer argument
# after the other, and objects, memory or ones for the other arguments. So no function can be forgotten. Then each
# function with a size of 0 for one struct after the other.
# Arguments that may be NULL are in `allowed`; the comment of their function must have the word NULL.
BEGIN {
	n = split("srt_config_unknown.report srt_config_unknown.arg srt_config_value.is_set " \
		"srt_context_create.options srt_engine_create.options srt_log_set.fn srt_log_set.arg srt_unit_create.parent " \
		"srt_unit_create.options srt_param_create.options srt_param_get.unsharded " \
		"srt_coll_start.epilogue srt_precision_resolve.precision srt_scaler_create.options " \
		"srt_buffer_create.name srt_buffer_wrap.name srt_buffer_wrap_native.name srt_stream_create.name " \
		"srt_comm_abort.reason srt_comm_create_group.name srt_comm_split.name srt_mesh_create.comm " \
		"srt_unit_full_params_begin.options srt_module_create.parent srt_module_add_param.options " \
		"srt_module_set_reset.arg srt_module_wrap.options srt_module_wrap_together.options " \
		"srt_module_ignore.param srt_module_apply.arg " \
		"srt_engine_wrap.policy srt_engine_wrap.options srt_engine_materialize.options " \
		"srt_sharded_tensor_create.comm srt_sharded_tensor_shape.shape " \
		"srt_sharded_tensor_create_from.comm " \
		"srt_sharded_optim_create.comm srt_shard_plan_apply.comm srt_sharded_layer_create_linear.grad " \
		"srt_sharded_layer_create_embedding.grad srt_sharded_tensor_save.path srt_file_find.tensor " \
		"srt_file_hash_params.all " \
		"srt_engine_save_folder.options srt_checkpoint_save.options srt_checkpoint_load.options srt_checkpoint_get_entry.nbytes " \
		"srt_checkpoint_save_begin.options srt_checkpoint_save_done.write " \
		"srt_checkpoint_verify.report srt_checkpoint_verify.arg srt_checkpoint_verify.verified " \
		"srt_file_get_entry.data srt_file_get_entry.nbytes srt_stream_enqueue.release", list, " ")
	for (i = 1; i <= n; i++)
		allowed[list[i]] = 1
	objects = " context device buffer stream event comm coll engine unit param unit_buffer optim scaler module sharded_tensor sharded_layer "
}

# Structs that begin with their size are found in all headers before the calls are made.
/^typedef struct / { begins = NR }
/^\tsize_t size;/ && NR <= begins + 1 { has_size = 1 }
/^} srt_[a-z_]*_t;/ {
	if (has_size)
		sized[substr($2, 1, length($2) - 1)] = 1
	has_size = 0
}
/^\/\*\*/ { comment = "" }
/^\/\*\*/, /\*\// { comment = comment " " $0 }
/^SRT_API[ \t]/ { declaration = ""; is_open = 1 }
is_open {
	declaration = declaration " " $0
	if (/;/) {
		is_open = 0
		gsub(/[ \t]+/, " ", declaration)
		declarations[++ndeclarations] = declaration
		comments[ndeclarations] = comment
	}
}
END {
	for (d = 1; d <= ndeclarations; d++)
		print_calls(declarations[d], comments[d])
	for (d = 1; d <= ndeclarations; d++)
		print_sizes(declarations[d])
}

function trim(s)
{
	gsub(/^ +| +$/, "", s)
	return s
}

# What a call passes for an argument of this type.
function value_of(type,   word)
{
	if (type == "const char *")
		return "\"x\""
	word = type
	sub(/^const /, "", word)
	if (word ~ /^srt_[a-z_]*_t \*$/) {
		sub(/^srt_/, "", word)
		sub(/_t \*$/, "", word)
		return index(objects, " " word " ") ? "objects." word : "memory"
	}
	if (word ~ /\*/)
		return "memory"
	if (word == "srt_dtype_t")
		return "SRT_F32"
	return "(" word "){ " (word ~ /^srt_/ ? 0 : 1) " }"
}

# By the type of the result: how the test checks a call.
function kind_of(type)
{
	if (type == "srt_status_t")
		return "STATUS"
	if (type == "void")
		return "VOID"
	if (type == "srt_view_t")
		return "VIEW"
	if (type == "const char *")
		return "TEXT"
	return type ~ /\*/ ? "POINTER" : "NUMBER"
}

# The struct with a size that a type points to, or "".
function sized_of(type)
{
	sub(/^const /, "", type)
	sub(/ \*$/, "", type)
	return type in sized ? type : ""
}

# Cuts a declaration: fname, result, and nargs, args[], type[], names[], is_pointer[] of its arguments.
function parse(text,   arg, i)
{
	sub(/ SRT_API /, "", text)
	fname = text
	sub(/\(.*/, "", fname)
	result = trim(fname)
	sub(/^.*[ *]/, "", fname)
	result = trim(substr(result, 1, length(result) - length(fname)))
	sub(/^[^(]*\(/, "", text)
	sub(/\) *;.*/, "", text)
	# A pointer to a function counts as one argument.
	if (match(text, /void \(\*[a-z]+\)\([^)]*\)/)) {
		arg = substr(text, RSTART, RLENGTH)
		sub(/void \(\*/, "", arg)
		sub(/\).*/, "", arg)
		text = substr(text, 1, RSTART - 1) "void *" arg substr(text, RSTART + RLENGTH)
	}
	nargs = split(text, args, ",")
	for (i = 1; i <= nargs; i++) {
		type[i] = trim(args[i])
		sub(/\[[0-9]*\]$/, "", type[i])
		names[i] = type[i]
		sub(/^.*[ *]/, "", names[i])
		type[i] = trim(substr(type[i], 1, length(type[i]) - length(names[i])))
		is_pointer[i] = type[i] ~ /\*/ || type[i] == "srt_log_fn *" || args[i] ~ /\[[0-9]*\]$/
	}
}

# The call of the parsed function with `bad` as argument k.
function call_with(k, bad,   i, call, init)
{
	call = fname "("
	for (i = 1; i <= nargs; i++) {
		init = toupper(sized_of(type[i]))
		sub(/_T$/, "_INIT", init)
		call = call (i > 1 ? ", " : "") (i == k ? bad : \
			init != "" ? "(" sized_of(type[i]) "[]){ " init " }" : \
			args[i] ~ /\[[0-9]*\]$/ ? "memory" : value_of(type[i]))
	}
	return call ")"
}

function print_sizes(text,   k)
{
	parse(text)
	for (k = 1; k <= nargs; k++)
		if (sized_of(type[k]) != "" && kind_of(result) != "VOID")
			printf "NO_SIZE(%s, %s, %s);\n", fname, sized_of(type[k]), call_with(k, "memory")
}

function print_calls(text, comment,   k)
{
	parse(text)
	for (k = 1; k <= nargs; k++) {
		if (!is_pointer[k])
			continue
		if ((fname "." names[k]) in allowed) {
			if (comment !~ /NULL/)
				print "#error " fname ": that " names[k] " may be NULL is not documented"
			continue
		}
		printf "NULL_%s(%s, %s, %s);\n", kind_of(result), fname, names[k], call_with(k, "NULL")
	}
}
