# SPDX-License-Identifier: BSD-3-Clause
#
# Output of `nm -A -g` over object files -> calls of a folder of runtime/engine to one that comes after it
# in the order below, one a line. Used by tests/policy/test_layers.sh. Needs only POSIX awk.
BEGIN {
	n = split("declare layout checks step values build", order, " ")
	for (i = 1; i <= n; i++)
		level[order[i]] = i
}

# "declare" of runtime/engine/declare/.libs/unit.o, else "".
function room_of(file) {
	if (file !~ /runtime\/engine\/[a-z]+\//)
		return ""
	sub(/.*runtime\/engine\//, "", file)
	sub(/\/.*/, "", file)
	return file
}

{
	file = substr($0, 1, index($0, ":") - 1)
	room = room_of(file)
	sub(/\.libs\//, "", file)
	if (room == "")
		next
	if (!(room in level))
		print file ": the folder " room " has no place in the order of tests/policy/rooms.awk"
	if ($(NF - 1) == "U") {
		caller[++ncalls] = file
		called[ncalls] = $NF
		from[ncalls] = room
	} else {
		home[$NF] = room
	}
}

END {
	for (i = 1; i <= ncalls; i++)
		if ((called[i] in home) && level[home[called[i]]] > level[from[i]])
			print caller[i] ": " from[i] " is below " home[called[i]] ", calls " called[i] "()"
}
