# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script whose servers need fixed TCP ports on this machine:
#
#     choose_ports N    sets $port so that nobody listens on the N ports from $port on
#
# They are random numbers below those that systems give to connections, so that tests which run at once differ.
choose_ports()
{
	while :; do
		port=$((10000 + $(od -An -N2 -tu2 /dev/urandom) * 22700 / 65536))
		for k in $(seq "$port" $((port + $1 - 1))); do
			! grep -q ":$(printf %04X "$k") " /proc/net/tcp /proc/net/tcp6 2> /dev/null || continue 2
		done
		return
	done
}
