# SPDX-License-Identifier: BSD-3-Clause
#
# Source files (names from the top) -> violations of the rules on layers and style, one a line.
# Used by tests/policy/test_layers.sh. Needs no more than POSIX awk.
BEGIN {
	split("base kernels device collectives runtime models tools", order, " ")
	for (i in order)
		level[order[i]] = i
	level["bench"] = level["examples"] = level["tests"] = level["tools"]
	level["backends"] = level["device"] + 0.5 # they implement the contract of device; none includes them
	last_library = level["runtime"]
	split("declare layout checks step values build", order, " ") # of runtime/engine
	for (i in order)
		room_level[order[i]] = i
	max_lines = 500
	max_public = 800 # a public header is read in order, from its first line
}

function complain(text) { print FILENAME ":" FNR ": " text }

# The code of a line: without comments; string and character literals emptied.
function code_of(s,   out, c) {
	out = ""
	while (s != "") {
		if (in_comment) {
			i = index(s, "*/")
			if (!i)
				return out
			s = substr(s, i + 2)
			in_comment = 0
		} else if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^'([^'\\]|\\.)*'/)) {
			out = out (substr(s, 1, 1) == "\"" ? "\"\"" : "0")
			s = substr(s, RLENGTH + 1)
		} else if (substr(s, 1, 2) == "/*") {
			in_comment = 1
			s = substr(s, 3)
		} else if (substr(s, 1, 2) == "//") {
			return out
		} else {
			out = out substr(s, 1, 1)
			s = substr(s, 2)
		}
	}
	return out
}

# The level of "runtime/engine/ROOM/...", or 0.
function room_of(path) {
	if (path !~ /^runtime\/engine\/[a-z]+\//)
		return 0
	sub(/^runtime\/engine\//, "", path)
	sub(/\/.*/, "", path)
	return room_level[path] + 0
}

function check_include(path, quoted,   to, dir) {
	if (folder == "include/shardrt" && FILENAME ~ /\/(opencl|cuda)\.h$/ && path ~ /^(CL\/cl|cuda)\.h$/)
		return # for programs
	if (path ~ /^shardrt\/(opencl|cuda)\.h$/ && folder !~ /^(examples|tests)/)
		complain("<" path "> is for programs: the library includes no header of a driver")
	if (path ~ /^shardrt\/models\// && (folder == "include/shardrt" || (level[top] && level[top] <= last_library)))
		complain("libshardrt-models is above libshardrt: <" path ">")
	if (path ~ /^cuda|^cublas|^cudnn/ && folder != "backends/cuda" &&
	    folder !~ /^tests\/fakes\/(fake_(cu|nccl)|null_cuda)/)
		complain("<" path "> belongs to backends/cuda")
	if (path ~ /^CL\// && folder != "backends/opencl")
		complain("<" path "> belongs to backends/opencl")
	if (path ~ /^ucp\/|^ucs\/|^uct\// && folder != "collectives/transports/ucx")
		complain("<" path "> belongs to collectives/transports/ucx")
	if (path ~ /^nccl/ && folder != "backends/cuda" && folder != "tests/fakes/fake_nccl")
		complain("<" path "> belongs to backends/cuda")
	if (!quoted || path == "config.h" || path ~ /^shardrt\//)
		return
	if (top == "examples" && path ~ /^[a-z_]+\.h$/) # of the same folder, as in programs
		return
	dir = path
	sub(/\/.*/, "", dir)
	if (path !~ /\// || !(dir in level)) {
		complain("\"" path "\": internal headers are named from the top")
		return
	}
	if (top == "runtime" && (path == "collectives/collective.h" || path ~ /^collectives\/.*\//) &&
	    path !~ /^collectives\/(bootstrap\/bootstrap|verify\/call_log)\.h$/)
		complain("the runtime does not include the inside of collectives: " path)
	if (room_of(FILENAME) && room_of(path) > room_of(FILENAME))
		complain(folder " is below " path)
	if (folder == "runtime/checkpoint/formats" && path ~ /^(runtime|collectives|device)\// &&
	    path !~ /^runtime\/checkpoint\/formats\//)
		complain("formats of files know no engine: " path)
	if (top == "include")
		complain("a public header includes an internal one: " path)
	# The launcher is the other end of the bootstrap's protocol, with the same clock; what is tested is timed.
	if (top == "tests" ||
	    (top == "tools" && path ~ /^(collectives\/bootstrap\/(rendezvous|wire)|base\/clock)\.h$/) ||
	    (top == "bench" && path == "tests/kernels/kernel_operations.h"))
		return
	if (dir == "tests")
		complain("only tests include tests: " path)
	else if (top == "examples")
		complain("examples use only public headers: " path)
	else if (top != "bench" && level[top] > last_library && level[dir] <= last_library)
		complain(top " uses only public headers: " path)
	else if (dir == "backends" && top != "backends" && top != "bench")
		complain("backends are reached through device: " path)
	else if (level[top] <= last_library && level[dir] > level[top])
		complain(top " is below " dir ": " path)
}

FNR == 1 {
	in_comment = 0
	top = FILENAME
	sub(/\/.*/, "", top)
	folder = FILENAME
	sub(/\/[^\/]*$/, "", folder)
	is_c = FILENAME ~ /\.[ch]$/
	limit = FILENAME ~ /^include\/shardrt\// ? max_public : max_lines
	licensed = 0
}

FNR <= 3 && /SPDX-License-Identifier: BSD-3-Clause/ { licensed = 1 }
FNR == 3 && !licensed { complain("no SPDX line at the top") }
FNR == limit + 1 && is_c { complain("the file has more than " limit " lines") }
/[ \t]$/ { complain("blanks at the end of the line") }
/TODO|FIXME|(^|[^X])XXX([^X]|$)/ && FILENAME != "tests/policy/layers.awk" { complain("a leftover") }

is_c {
	if (match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*/)) {
		path = substr($0, RSTART, RLENGTH)
		quoted = path ~ /"/
		sub(/.*["<]/, "", path)
		check_include(path, quoted)
		next
	}
	code = " " code_of($0)
	if (level[top] && level[top] <= last_library) {
		gsub(/format\(printf/, "", code)
		if (code ~ /[^A-Za-z0-9_](printf|vprintf|puts|putchar|perror|stdout|stderr)[^A-Za-z0-9_]/ && FILENAME != "base/log.c")
			complain("the library prints in base/log.c alone")
		if (code ~ /[^A-Za-z0-9_>.](exit|_exit|_Exit|quick_exit|abort|assert|raise)[ \t]*\(/)
			complain("the library does not end the process")
	}
	if (level[top] <= last_library || top == "models") {
		if (code ~ /[^A-Za-z0-9_](getenv|secure_getenv|setenv|putenv|environ)[^A-Za-z0-9_]/ &&
		    FILENAME != "base/config.c" &&
		    !(FILENAME == "device/probe.c" && code ~ /environ/)) # for the process that it starts
			complain("only base/config.c reads the environment")
	}
}
