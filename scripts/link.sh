#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# link.sh [OPTION...] --mode=link COMPILER ARGUMENT...: links a program of the build folder as libtool does with these
# arguments, in a tenth of the time, but makes no script that starts the program: it finds shared libraries by its -rpath.
while [ "$1" != --mode=link ]; do
	shift
done
shift
for argument; do
	shift
	case $argument in
	*.la) # sets the names of the files in .libs, and what a static library needs
		dlname='' old_library='' dependency_libs=''
		# shellcheck disable=SC1090
		. "./$argument" || exit 1
		[ -z "$dlname" ] || dependency_libs=''
		# shellcheck disable=SC2086
		set -- "$@" ".libs/${dlname:-$old_library}" $dependency_libs
		;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec "$@"
