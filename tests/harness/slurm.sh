# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that needs srun, after wait.sh and port.sh, with a folder $dir. It starts munge and
# Slurm, which need root, and no service of the system:
#
#     can_start_cluster          1 if that cannot be done here; prints what is missing
#     start_cluster              one node
#     start_cluster hosts        two nodes on the hosts of hosts.sh; $at1 precedes commands on host 1, as srun
#     trap 'end_cluster; end_background; ...' EXIT
cluster=

# can_start_cluster [hosts]
can_start_cluster()
{
	for needed in srun slurmctld slurmd munged setpriv; do
		command -v $needed > /dev/null || { echo "not tested: srun: $needed is not installed"; return 1; }
	done
	[ "$(id -u)" = 0 ] || { echo "not tested: srun, for which the test has to run as root"; return 1; }
	[ "$1" != hosts ] || can_enter_hosts
}

# Makes a script that runs a command in a network namespace. slurmd needs /sys/fs/cgroup, which ip netns exec hides,
# and UCX needs the /sys of the namespace.
can_enter_hosts()
{
	mkdir -p "$dir/cgroup"
	cat > "$dir/at" << END
namespace=\$1
shift
exec nsenter --net=/run/netns/\$namespace unshare -m sh -c '
	mount --rbind /sys/fs/cgroup "$dir/cgroup" && mount -t sysfs none /sys &&
		mount --rbind "$dir/cgroup" /sys/fs/cgroup && exec "\$@"' sh "\$@"
END
	sh "$dir/at" "$(namespace 1)" true 2> "$dir/at.err" ||
		{ echo "not tested: srun on two hosts: $(head -n 1 "$dir/at.err")"; return 1; }
}

# In the order in which they need each other; what does not end is killed at the script's end.
end_cluster()
{
	[ -n "$cluster" ] || return 0
	for process in $slurmds $slurmctld $munged; do
		kill "$process" 2> /dev/null && reap "$process"
	done
	cluster=
}

write_slurm_conf()
{
	cat > "$SLURM_CONF" << END
ClusterName=test
SlurmctldHost=$me($controller)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster/munge/sock
CredType=cred/munge
SlurmctldPort=$port
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool.%n
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.%n.pid
TmpFS=$cluster/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
KillWait=2
MpiDefault=none
PartitionName=all Nodes=ALL Default=YES State=UP
END
}

# add_node NAME ADDRESS PORT
add_node()
{
	mkdir -p "$cluster/spool.$1" "$cluster/tmp.$1" &&
		echo "NodeName=$1 NodeHostname=$me NodeAddr=$2 Port=$3 CPUs=4 State=UNKNOWN" >> "$SLURM_CONF"
}

start_munge()
{
	mkdir -p "$cluster/munge" && head -c 128 /dev/urandom > "$cluster/munge/key" && chmod 400 "$cluster/munge/key" &&
		chown -R munge:munge "$cluster/munge" && chmod 711 "$cluster/munge" || return 1
	setpriv --reuid=munge --regid=munge --clear-groups munged -F --key-file="$cluster/munge/key" \
		--socket="$cluster/munge/sock" --pid-file="$cluster/munge/pid" --log-file="$cluster/munge/log" \
		--seed-file="$cluster/munge/seed" > "$cluster/munged.out" 2>&1 &
	started
	munged=$started
	await_of "$munged" test -S "$cluster/munge/sock"
}

# start_slurmd NODE COMMAND...: by this command, if there is one
start_slurmd()
{
	node=$1
	shift
	"$@" slurmd -D -N "$node" -f "$SLURM_CONF" > "$cluster/slurmd.$node.out" 2>&1 &
	started
	slurmds="$slurmds $started"
}

start_cluster()
{
	me=$(uname -n)
	cluster=$dir/cluster
	slurmds= slurmctld= munged=
	SLURM_CONF=$cluster/conf
	export SLURM_CONF
	choose_ports 2
	controller=127.0.0.1 at1="env" at2=
	[ "$1" != hosts ] ||
		{ controller=$host1 at1="sh $dir/at $(namespace 1)" at2="sh $dir/at $(namespace 2)"; }
	chmod 711 "$dir" && mkdir -p "$cluster/state" && start_munge && write_slurm_conf || return 1
	add_node n1 $controller $((port + 1)) || return 1
	[ -z "$at2" ] || add_node n2 "$host2" $((port + 1)) || return 1
	$at1 slurmctld -D -f "$SLURM_CONF" > "$cluster/slurmctld.out" 2>&1 &
	started
	slurmctld=$started
	# A node does not try again soon if the controller is not there yet.
	await_of "$slurmctld" grep -q "Running as primary controller" "$cluster/slurmctld.out" || return 1
	# shellcheck disable=SC2086
	start_slurmd n1 $at1
	# shellcheck disable=SC2086
	[ -z "$at2" ] || start_slurmd n2 $at2
	await all_are_idle
}
all_are_idle() { [ "$($at1 sinfo -h -N -o %T | sort -u)" = idle ]; }
