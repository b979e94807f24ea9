# SPDX-License-Identifier: BSD-3-Clause
#
# Kernel sources (named from the top of the source tree, where it must run) -> C code that holds
# each as a string with its includes in place, once each, for backends that compile at run time.
# Names in system brackets stay: they stand where OpenCL C does not look. KERNEL( and MAP( lines of .k files
# give the table of which source has which portable kernel. Needs no more than POSIX awk.
#
#     awk -v header=backends/opencl/source.h -v prefix=srt_ocl -f kernels/embed.awk FILE...

function base_name(path)
{
	sub(/.*\//, "", path)
	sub(/\.[^.]*$/, "", path)
	return path
}

# A line as a piece of a C string.
function put(line,   n, i, part)
{
	gsub(/\\/, "&&", line)
	n = split(line, part, "\"")
	line = part[1]
	for (i = 2; i <= n; i++)
		line = line "\\\"" part[i]
	printf "\t\"%s\\n\"\n", line
}

# Writes a file with what it includes; the line numbers of messages are the file's own.
function embed(path,   line, n, name, status)
{
	seen[path] = 1
	put("#line 1 \"" path "\"")
	while ((status = (getline line < path)) > 0) {
		n++
		if (line ~ /^#include "/) {
			name = line
			sub(/^#include "/, "", name)
			sub(/".*/, "", name)
			if (!(name in seen)) {
				embed(name)
				put("#line " n + 1 " \"" path "\"")
			} else {
				put("")
			}
			continue
		}
		if (path ~ /\.k$/ && line ~ /^(MAP|KERNEL(_ELEMENTWISE|_DENSE|_COLUMNS)?)\(/) {
			name = line
			sub(/^[A-Z_]*\(([0-9]+, *)?/, "", name)
			sub(/,.*/, "", name)
			kernels[++nkernels] = name
			family[nkernels] = base_name(path)
		}
		put(line)
	}
	close(path)
	if (status < 0) {
		print "embed.awk: cannot read " path > "/dev/stderr"
		exit 1
	}
}

BEGIN {
	print "/* SPDX-License-Identifier: BSD-3-Clause */"
	print "/* Made by kernels/embed.awk. */"
	print "#include \"kernels/table.h\""
	print "#include \"" header "\"\n"
	for (i = 1; i < ARGC; i++) {
		for (path in seen)
			delete seen[path]
		printf "static const char text_%s[] =\n", base_name(ARGV[i])
		embed(ARGV[i])
		print "\t;\n"
	}
	print "const " prefix "_source_t " prefix "_sources[] = {"
	for (i = 1; i < ARGC; i++)
		printf "\t{ \"%s\", text_%s },\n", base_name(ARGV[i]), base_name(ARGV[i])
	print "\t{ 0, 0 },\n};\n"
	print "const char *const " prefix "_source_of[] = {"
	for (i = 1; i <= nkernels; i++)
		printf "\t[SRT_K_%s] = \"%s\",\n", toupper(kernels[i]), family[i]
	print "};"
	exit 0
}
