#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrun --hosts: ranks, prefixes, failures, restarts, signals and lost connections on two hosts. Both are this
# machine, by a remote shell that runs the command here; then two network namespaces, if they can be made, with a
# training that is killed on the second host and goes on; then ssh and sshd, if they are installed.
. "$srcdir/tests/harness/hosts.sh"
[ -x ./shardrun ] || { echo "SKIP: shardrun was not built"; exit 77; }
SHARDRT_BACKEND=cpu SHARDRT_THREADS=1
export SHARDRT_BACKEND SHARDRT_THREADS srcdir dir
unset SHARDRT_PORT SHARDRT_ADDRESS

# expect STATUS WHAT COMMAND...: output in $dir/out, $dir/err
expect()
{
	want=$1 what=$2
	shift 2
	rm -f "$dir"/pid.* "$dir"/start.*
	"$@" >"$dir/out" 2>"$dir/err" </dev/null
	got=$?
	[ $got = "$want" ] || fail "$what: status $got, not $want"
}
has() { grep -q -e "$2" "$dir/$1" || fail "$what: no \"$2\" in $1"; }

# begin WHAT COMMAND...: in the background, as $started
begin()
{
	what=$1
	shift
	rm -f "$dir"/pid.*
	"$@" >"$dir/out" 2>"$dir/err" </dev/null &
	started
}
ready() { [ "$(ls "$dir"/pid.* | wc -l)" = "$1" ]; }
# await_ranks N: until N ranks wait
await_ranks() { await_of "$started" ready "$1" || fail "$what: the ranks do not start"; }
# gone_by_signals: INT is ignored in the background; of two that are pending one is seen, so as often as it takes
gone_by_signals() { gone "$started" || { kill -TERM "$started" && kill -HUP "$started"; sleep .1; false; }; }
# ended: the ranks that have waited do not run any more
ended() { await gone $(cat "$dir"/pid.*) || fail "$what: ranks are left"; }

refused()
{
	words=$1
	shift
	expect 2 "shardrun $*" ./shardrun "$@"
	has err "^shardrun: .*$words"
	[ "$(wc -l <"$dir/err")" = 1 ] || fail "shardrun $*: more than one line"
}
refused "number of ranks of every host, or of none" --hosts a:1,b true
refused "must be from 1 to 512, not \"0\"" --hosts a:0 true
refused "must be from 1 to 512, not \"x\"" --hosts a:x,b true
refused "\"\" is not the name of a host" -n 2 --hosts a, true
refused "\"-o\" is not the name of a host" -n 2 --hosts a,-o true
refused "have 3 ranks, but -n is 2" -n 2 --hosts a:2,b:1 true
refused "each of the 2 hosts of --hosts needs a rank" -n 1 --hosts a,b true
refused "each of the 2 hosts of --hosts needs a rank" --hosts a,b true
refused "cannot be given with --hosts" -n 2 --hosts a,b -r 1 -m 1 true
refused "b cannot reach the first host as \"me@localhost\".*SHARDRT_ADDRESS" -n 3 --hosts me@localhost,127.0.0.1,b true
refused "b cannot reach the first host as \"127.0.1.1\".*SHARDRT_ADDRESS" -n 2 --hosts 127.0.1.1,b true
SHARDRT_PORT=99999 && export SHARDRT_PORT
refused "SHARDRT_PORT=99999: must be a number from 1 to 65535" -n 2 --hosts a,b true
unset SHARDRT_PORT
refused "rsh needs --hosts" -n 2 --rsh ssh true
refused "FIRST:WORLD:HOST" -n 2 --part 1:2 true
refused "ranks 1 to 2 are not below 2" -n 2 --part 1:2:a true
expect 1 "a part without shardrun" ./shardrun -n 1 --part 0:1:a true
has err "part is for shardrun --hosts"

# What a rank runs that waits; its process is in pid.RANK.
waits='echo $$ > "$dir/new.$SHARDRT_RANK" && mv "$dir/new.$SHARDRT_RANK" "$dir/pid.$SHARDRT_RANK"
exec sleep 600'

# checks HOST HOST: what works on all kinds of hosts; $rsh is their remote shell
checks()
{
	# Order, shares, numbers, prefixes, words and the folder.
	expect 0 "start" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 3 --prefix sh -c '[ -x ./shardrun ] || exit 1
		echo "$SHARDRT_LOCAL_RANK of $SHARDRT_LOCAL_SIZE, $SHARDRT_WORLD_SIZE, $1 $2"
		echo to err >&2' sh "it's  \$(this)" '"*'
	[ "$(sort "$dir/out")" = "[0] 0 of 2, 3, it's  \$(this) \"*
[1] 1 of 2, 3, it's  \$(this) \"*
[2] 0 of 1, 3, it's  \$(this) \"*" ] || fail "start: wrong ranks"
	[ "$(sort "$dir/err")" = "[0] to err
[1] to err
[2] to err" ] || fail "start: wrong standard errors"
	expect 0 "counts" ./shardrun --rsh "$rsh" --hosts "$1:1,$2:3" sh -c 'echo $SHARDRT_RANK.$SHARDRT_LOCAL_RANK'
	[ "$(sort "$dir/out" | tr '\n' ' ')" = "0.0 1.0 2.1 3.2 " ] || fail "counts: wrong ranks"

	# Lines of two hosts are not torn, and the last one stays as it is.
	expect 0 "lines" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 2 sh -c '. "$srcdir/tests/harness/wait.sh"
		printf "one "
		echo > "$dir/start.$SHARDRT_RANK"
		await test -e "$dir/start.0" && await test -e "$dir/start.1" && echo two'
	[ "$(grep -c -x "one two" "$dir/out")" = 2 ] || fail "lines: torn"
	expect 0 "last line" ./shardrun --rsh "$rsh" --hosts "$2" -n 1 printf 'a\nb'
	[ "$(od -An -c "$dir/out" | tr -d ' ')" = 'a\nb' ] || fail "last line: changed"

	# A failure on the second host ends all; it is the exit status, and is reported with its rank and host.
	expect 7 "failure" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 4 sh -c '. "$srcdir/tests/harness/wait.sh"
		if [ $SHARDRT_RANK = 3 ]; then
			await test -e "$dir/pid.0" && await test -e "$dir/pid.1" && await test -e "$dir/pid.2"
			exit 7
		fi
		'"$waits"
	has err "rank 3 on $2 exited with status 7"
	has err "the part on $2 exited with status 7"
	ended
	# An exit(-1) is not a signal: the first failure stays the exit status.
	expect 7 "status 255" ./shardrun --keep-going --rsh "$rsh" --hosts "$1,$2" -n 2 sh -c '
		. "$srcdir/tests/harness/wait.sh"
		[ $SHARDRT_RANK = 1 ] || exit 7
		await grep -q "the part on .* exited with status 7" "$dir/err" && exit 255'
	has err "the part on $2 exited with status 255"
	expect 127 "not found" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 2 ./no-such-program
	has err "cannot run ./no-such-program: No such file or directory"
	expect 0 "quiet" ./shardrun -q --rsh "$rsh" --hosts "$1,$2" -n 2 true
	[ ! -s "$dir/err" ] || fail "quiet is not"

	# A rank of the second host is killed: all start again, at another address, with another token.
	expect 0 "restart" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 3 -d 0 --restarts 2 sh -c '
		. "$srcdir/tests/harness/wait.sh"
		start=$SHARDRT_RESTART_COUNT
		echo "$SHARDRT_BOOTSTRAP $SHARDRT_TOKEN" > "$dir/start.$start.$SHARDRT_RANK"
		[ $start = 0 ] || exit 0
		if [ $SHARDRT_RANK = 2 ]; then
			await test -e "$dir/pid.0" && await test -e "$dir/pid.1" && kill -KILL $$
		fi
		'"$waits"
	has err "rank 2 on $2 was killed by signal 9"
	has err "the part on $2 exited with status 137: starting the job again with 3 ranks, 1 restart left"
	ended
	[ "$(sort -u "$dir"/start.0.* | wc -l)" = 1 ] || fail "restart: the ranks of a start have different addresses"
	[ "$(cat "$dir"/start.0.* "$dir"/start.1.* | sort -u | wc -l)" = 2 ] || fail "restart: the same address"

	# The token is in no command line; signals reach all ranks; a signal to end is not a failure.
	begin "signals" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 3 sh -c '
		trap "echo USR1 >> \"$dir/usr1.$SHARDRT_RANK\"" USR1
		trap "exit 0" TERM
		echo "$SHARDRT_TOKEN" > "$dir/token"
		echo $$ > "$dir/new.$SHARDRT_RANK" && mv "$dir/new.$SHARDRT_RANK" "$dir/pid.$SHARDRT_RANK"
		while :; do sleep 0.05; done'
	await_ranks 3
	[ -n "$(grep -l -e '[-]-part=0' /proc/[0-9]*/cmdline 2>/dev/null)" ] || fail "no command line has --part"
	[ -z "$(grep -l -F -f "$dir/token" /proc/[0-9]*/cmdline 2>/dev/null)" ] || fail "the token is in a command line"
	kill -USR1 "$started"
	for r in 0 1 2; do
		await_of "$started" test -s "$dir/usr1.$r" || fail "signals: USR1 does not reach rank $r"
	done
	kill -TERM "$started"
	reap "$started" && [ "$status" = 0 ] || fail "signals: status $status"
	rm -f "$dir"/usr1.* "$dir/token"
	ended

	# A rank that ignores TERM is killed after the grace time.
	expect 7 "grace" ./shardrun --grace 0.5 --rsh "$rsh" --hosts "$1,$2" -n 2 sh -c '. "$srcdir/tests/harness/wait.sh"
		if [ $SHARDRT_RANK = 0 ]; then
			await test -e "$dir/pid.1" && exit 7
		fi
		trap "" TERM
		'"$waits"
	has err "rank 1 on $2 did not end within 0.5 s: killed"
	ended

	# shardrun is killed.
	begin "kill of shardrun" ./shardrun --rsh "$rsh" --hosts "$1,$2" -n 3 sh -c "$waits"
	await_ranks 3
	kill -KILL "$started"
	reap "$started"
	ended

	# The connection to the second host is lost; the remote shell is another process group than the part, as with ssh.
	cat >"$dir/apart" <<END
#!/bin/sh
echo \$\$ >"$dir/shell.\$1"
mkfifo "$dir/input.\$\$" && exec 3<&0 4<>"$dir/input.\$\$" 5<"$dir/input.\$\$" 6>"$dir/input.\$\$" 4<&-
cat <&3 >&6 5<&- &
exec 3<&- 6>&-
setsid "$rsh" "\$@" <&5 5<&-
END
	chmod +x "$dir/apart"
	begin "lost connection" ./shardrun --rsh "$dir/apart" --hosts "$1,$2" -n 3 sh -c "$waits"
	await_ranks 3
	kill -KILL "$(cat "$dir/shell.$2")"
	reap "$started" && [ "$status" = 137 ] || fail "lost connection: status $status"
	has err "the part on $2 was killed by signal 9"
	ended
	# The next start waits for the ranks there. A signal ends that wait.
	begin "wait for a lost host" ./shardrun -d 0 --restarts 1 --grace 1000 --rsh "$dir/apart" --hosts "$1,$2" -n 3 sh -c '
		echo > "$dir/start.$SHARDRT_RESTART_COUNT"
		'"$waits"
	await_ranks 3
	kill -KILL "$(cat "$dir/shell.$2")"
	await_of "$started" grep -q "waiting for 1005 s" "$dir/err" || fail "wait for a lost host: no wait"
	kill -TERM "$started"
	reap "$started" && [ "$status" = 137 ] || fail "wait for a lost host: status $status"
	[ ! -e "$dir/start.1" ] || fail "wait for a lost host: there was another start"
	ended

	# The third signal to end kills ranks of the other process groups, also after a failure has begun to end them.
	for first in none 0; do
		begin "third signal, failure of $first" ./shardrun --grace 1000 --rsh "$dir/apart" --hosts "$1,$2" -n 3 sh -c '
			trap "" INT TERM HUP
			. "$srcdir/tests/harness/wait.sh"
			if [ $SHARDRT_RANK = "$1" ]; then
				await test -e "$dir/pid.1" && await test -e "$dir/pid.2" && exit 7
			fi
			'"$waits" sh $first
		if [ $first = none ]; then
			await_ranks 3
		else
			await_of "$started" grep -q "ending the other" "$dir/err" || fail "$what: no failure"
		fi
		await gone_by_signals || fail "$what: goes on"
		reap "$started" && [ "$status" != 0 ] || fail "$what: status $status"
		ended
	done
}

cat >"$dir/here" <<'END'
#!/bin/sh
shift
exec sh -c "$*"
END
chmod +x "$dir/here"
rsh=$dir/here

# The default of --rsh: an ssh that notices a cut network.
mkdir "$dir/bin"
cat >"$dir/bin/ssh" <<END
#!/bin/sh
echo "\$*" >"$dir/ssh.words"
while [ "\$1" = -o ]; do shift 2; done
exec "$rsh" "\$@"
END
chmod +x "$dir/bin/ssh"
expect 0 "default of --rsh" env PATH="$dir/bin:$PATH" ./shardrun --hosts localhost -n 1 true
has ssh.words "-o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 localhost cd "

checks localhost 127.0.0.1
# Reliability: a job on several hosts of which one does not answer when the job is ended | ends 30 s after the grace time,
# which no page says | 10 s, as --help says
begin "frozen part" ./shardrun --grace 0.1 --rsh "$rsh" --hosts localhost,127.0.0.1 -n 2 sh -c "$waits"
await_ranks 2
kill -STOP "$(sed 's/.*) . //; s/ .*//' "/proc/$(cat "$dir/pid.1")/stat")" # the parent of rank 1
kill -TERM "$started"
reap "$started" || fail "frozen part: does not end"
has err "the part on 127.0.0.1 did not end within 10.1 s: killed"
ended
if grep -q '^#define HAVE_SODIUM 1' config.h; then
	expect 0 "job" ./shardrun --rsh "$rsh" --hosts localhost,127.0.0.1 -n 3 tests/collectives/test_launchers job 3
	[ "$(sort "$dir/out" | tr '\n' ' ')" = "rank 0 rank 1 rank 2 " ] || fail "job: not each rank is there once"
fi
echo "passed: this machine twice"

# ---- a training on two hosts, of which a rank of the second one is killed, has the hash of one that was not disturbed
can_train()
{
	[ -x ./shardrt-train ] || { echo "not tested: shardrt-train was not built"; return 1; }
	for needed in UCX SODIUM JANSSON XXHASH; do
		grep -q "^#define HAVE_$needed 1" config.h || { echo "not tested: training without $needed"; return 1; }
	done
}
killed_training()
{
	# UCX would also use the memory that the namespaces share, as they are on one machine.
	UCX_TLS=tcp,self
	export UCX_TLS
	train="./shardrt-train --text $srcdir/README.md --layers 1 --heads 2 --width 16 --context 16 --batch 6
		--eval-every 0 --strategy zero3 --hash --steps 500"
	# shellcheck disable=SC2086
	expect 0 "training" ./shardrun -n 3 $train
	hash=$(sed -n 's/^hash: //p' "$dir/out")
	[ -n "$hash" ] || fail "training: no hash"
	# The first start writes to a pipe that nobody reads, which holds less than 400 lines: so it does not end.
	mkfifo "$dir/log"
	exec 4<>"$dir/log"
	# shellcheck disable=SC2086,SC2016
	expect 0 "killed training" ./shardrun -p --rsh "$rsh" --hosts $host1,$host2 -n 3 -d 0 --restarts 1 sh -c '
		. "$srcdir/tests/harness/wait.sh"
		[ $SHARDRT_RESTART_COUNT = 0 ] || exec "$@"
		"$@" --log "$dir/log" &
		started
		if [ $SHARDRT_RANK = 2 ]; then
			await_of $started test -e "$dir/run/latest" && kill -KILL $started $$
		fi
		reap $started
		exit $status' sh $train --checkpoint "$dir/run" --save-every 5 --resume
	exec 4>&-
	has err "rank 2 on $host2 was killed by signal 9"
	has err "starting the job again with 3 ranks, 0 restarts left"
	[ "$(sed -n 's/^\[0\] hash: //p' "$dir/out")" = "$hash" ] || fail "killed training: another hash than $hash"
	echo "passed: a training that is killed on the second host, $hash"
}
if can_make_hosts; then
	rsh=$dir/rsh
	checks $host1 $host2
	expect 255 "no such host" ./shardrun --rsh "$rsh" --hosts "$host1,198.18.0.3" -n 2 sleep 600
	has err "the part on 198.18.0.3 exited with status 255"
	echo "passed: two network namespaces"
	! can_train || killed_training
else
	echo "not tested: two hosts: $no_hosts"
fi

# ---- ssh, to an sshd that talks to it over pipes and not over a port
can_ssh()
{
	sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "not tested: ssh: sshd is not installed"; return 1; }
	for needed in ssh ssh-keygen; do
		command -v $needed >/dev/null || { echo "not tested: ssh: $needed is not installed"; return 1; }
	done
	ssh-keygen -q -t ed25519 -N "" -f "$dir/host_key" && ssh-keygen -q -t ed25519 -N "" -f "$dir/key" || fail "ssh-keygen"
	cat >"$dir/sshd.conf" <<END
HostKey $dir/host_key
AuthorizedKeysFile $dir/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
END
	# sshd of root needs a folder that the system's service makes: here in a tmpfs that nobody else sees.
	cat >"$dir/sshd" <<END
#!/bin/sh
[ "\$(id -u)" = 0 ] || exec $sshd -i -f $dir/sshd.conf
exec unshare -m sh -c 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec $sshd -i -f $dir/sshd.conf'
END
	chmod +x "$dir/sshd"
	cat >"$dir/ssh.conf" <<END
Host *
ProxyCommand $dir/sshd
IdentityFile $dir/key
IdentitiesOnly yes
UserKnownHostsFile $dir/known
StrictHostKeyChecking accept-new
LogLevel ERROR
END
	ssh -F "$dir/ssh.conf" -o BatchMode=yes one true 2>"$dir/err" ||
		{ echo "not tested: ssh does not work here: $(head -n 1 "$dir/err")"; return 1; }
}
if can_ssh; then
	cat >"$dir/ssh" <<END
#!/bin/sh
echo \$\$ >"$dir/shell.\$1"
exec ssh -F "$dir/ssh.conf" -o BatchMode=yes "\$@"
END
	chmod +x "$dir/ssh"
	rsh=$dir/ssh
	vars='srcdir=$1 dir=$2
	'
	expect 7 "ssh" ./shardrun -p --rsh "$rsh" --hosts "one,$(id -un)@two" -n 4 sh -c "$vars"'
		. "$srcdir/tests/harness/wait.sh"
		if [ $SHARDRT_RANK = 3 ]; then
			await test -e "$dir/pid.0" && await test -e "$dir/pid.1" && await test -e "$dir/pid.2"
			echo "rank 3 was here, $SHARDRT_BACKEND" && exit 7
		fi
		'"$waits" sh "$srcdir" "$dir"
	has out "^\[3\] rank 3 was here, cpu"
	has err "rank 3 on $(id -un)@two exited with status 7"
	ended
	begin "lost ssh" ./shardrun --rsh "$rsh" --hosts one,two -n 3 sh -c "$vars$waits" sh "$srcdir" "$dir"
	await_ranks 3
	kill -KILL "$(cat "$dir/shell.two")"
	reap "$started" && [ "$status" = 137 ] || fail "lost ssh: status $status"
	ended
	# A rank that writes while it ends does not die of that, although nobody reads it any more.
	rm -f "$dir"/bye.*
	begin "killed with ssh" ./shardrun --grace 100 --rsh "$rsh" --hosts one,two -n 3 sh -c "$vars"'
		trap "echo bye && echo bye > $dir/bye.$SHARDRT_RANK && exit" TERM
		echo $$ > "$dir/new.$SHARDRT_RANK" && mv "$dir/new.$SHARDRT_RANK" "$dir/pid.$SHARDRT_RANK"
		while :; do sleep 0.05; done' sh "$srcdir" "$dir"
	await_ranks 3
	kill -KILL "$started"
	reap "$started"
	ended
	[ "$(cat "$dir"/bye.* | wc -l)" = 3 ] || fail "killed with ssh: ranks could not write"
	if grep -q '^#define HAVE_SODIUM 1' config.h; then
		expect 0 "ssh job" env SHARDRT_ADDRESS=localhost ./shardrun --rsh "$rsh" --hosts one,two -n 3 \
			env "ASAN_OPTIONS=$ASAN_OPTIONS" "LSAN_OPTIONS=$LSAN_OPTIONS" "TSAN_OPTIONS=$TSAN_OPTIONS" \
			tests/collectives/test_launchers job 3
		[ "$(sort "$dir/out" | tr '\n' ' ')" = "rank 0 rank 1 rank 2 " ] || fail "ssh job: not each rank is there once"
	fi
	echo "passed: ssh"
fi
exit 0
