#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# abi.sh LIBRARY SRCDIR: prints the binary interface of the shared library, made from its debug information by abidw of
# libabigail: exported functions and the types of the public headers. Names of sources are relative to SRCDIR.
#
# A type that no public header defines is an opaque type, whatever its fields are. abidw --headers-dir would compare the last
# components of paths alone, and engine.h is an internal header too. The label is that of the rule which --headers-dir makes:
# under another one a parameter that points to such a type would be left out.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/private" << 'END'
[suppress_type]
  label = Artificial private types suppression specification
  source_location_not_regexp = include/shardrt/
  drop = yes
END
abidw --suppressions "$tmp/private" --exported-interfaces-only --no-show-locs --no-elf-needed --no-corpus-path \
	--no-comp-dir-path --no-parameter-names --no-write-default-sizes --type-id-style hash --out-file "$tmp/abi" "$1" &&
	sed "s|path='$2/|path='|" "$tmp/abi"
