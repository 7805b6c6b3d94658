#!/usr/bin/env bash
# Two hosts train together from a store on a third, over links with delay and loss: the weights are those of one process. The
# hosts are network namespaces of this machine; where it does not allow them, this is skipped.
#
#   hosts.sh PROGRAMS     the folder of the programs; LOADERX_PYTHON has moto
set -euo pipefail
programs=$(realpath "$1")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
skip() { printf 'skipped: %s\n' "$*"; exit 0; }
command -v ip >/dev/null && command -v tc >/dev/null || skip "ip and tc are not installed"
ip netns add lx-store 2>/dev/null || skip "this machine allows no network namespaces"
folder=$(mktemp -d)
end() {
    for host in store a b; do ip netns del lx-$host 2>/dev/null || true; done
    rm -rf "$folder"
}
trap end EXIT
ip -n lx-store link set lo up
ip netns exec lx-store sysctl -qw net.ipv4.ip_forward=1
for pair in 1:a 2:b; do
    net=10.77.${pair%:*} host=lx-${pair#*:}
    ip netns add "$host"
    ip -n lx-store link add "to-$host" type veth peer name eth netns "$host"
    ip -n lx-store addr add "$net.1/24" dev "to-$host"
    ip -n lx-store link set "to-$host" up
    ip -n "$host" addr add "$net.2/24" dev eth
    ip -n "$host" link set eth up
    ip -n "$host" link set lo up
    ip -n "$host" route add default via "$net.1"
    ip netns exec "$host" tc qdisc add dev eth root netem delay 5ms loss 1% 2>/dev/null ||
        printf 'no delay and no loss: this machine has no netem\n'
done
"$programs/loaderx" import examples/mnist/data/train.npz "$folder/mnist" >/dev/null
export MASTER_ADDR=10.77.1.2 WORLD_SIZE=4 FOLDER=$folder PROGRAMS=$programs
cat >"$folder/run.sh" <<'RUN'
set -euo pipefail
for store in images labels; do LOADERX_CACHE=$FOLDER/0 "$PROGRAMS/loaderx" push "$FOLDER/mnist/$store" "$LOADERX_S3/mnist/$store"; done
LOADERX_CACHE=$FOLDER/0 RANK=0 WORLD_SIZE=1 "$PROGRAMS/examples/distributed" --data "$LOADERX_S3/mnist" --steps 20 >"$FOLDER/one"
ranks=()
for rank in 0 1 2 3; do
    host=$([ $rank -lt 2 ] && echo a || echo b)
    RANK=$rank LOADERX_CACHE=$FOLDER/$host timeout 120 ip netns exec lx-$host \
        "$PROGRAMS/examples/distributed" --data "$LOADERX_S3/mnist" --steps 20 >"$FOLDER/rank$rank" &
    ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank"; done
RUN
ip netns exec lx-store "$LOADERX_PYTHON" "$here/s3_server.py" --address 10.77.1.1 bash "$folder/run.sh"
cat "$folder/one" "$folder/rank0"
[ "$(sed 's/.*weights//' "$folder/one")" = "$(sed 's/.*weights//' "$folder/rank0")" ]
