#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# link.sh [OPTION...] --mode=link COMPILER ARGUMENT...: links a program of the build folder as libtool does with these
# arguments, in a tenth of the time, but makes no script that starts the program: it finds shared libraries by its -rpath.
# Options of libtool alone, such as -all-static in LDFLAGS, go to the compiler.
# A library that was installed with a .la file is found in its folder, also when the program runs.
installed()
{
	folder=${1%/*} name=${1##*/lib}
	echo "-L$folder -l${name%.la} -Wl,-rpath,$folder"
}
while [ "$1" != --mode=link ]; do
	shift
done
shift
for argument; do
	shift
	case $argument in
	/*.la)
		# shellcheck disable=SC2046
		set -- "$@" $(installed "$argument")
		;;
	*.la) # sets the names of the files in .libs, and what a static library needs
		dlname='' old_library='' dependency_libs=''
		# shellcheck disable=SC1090
		. "./$argument" || exit 1
		[ -z "$dlname" ] || dependency_libs=''
		set -- "$@" ".libs/${dlname:-$old_library}"
		for library in $dependency_libs; do
			case $library in
			*.la) library=$(installed "$library") ;;
			esac
			# shellcheck disable=SC2086
			set -- "$@" $library
		done
		;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec "$@"
