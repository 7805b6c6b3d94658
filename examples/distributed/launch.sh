#!/usr/bin/env bash
# Starts a program N times on this machine, as torchrun does: each with its RANK, all with one WORLD_SIZE. Where one fails, the
# others are ended, and so is this.
#
#   launch.sh N PROGRAM [ARGUMENT...]
set -uo pipefail
world=$1
shift
processes=()
for ((rank = 0; rank < world; rank++)); do
    RANK=$rank WORLD_SIZE=$world "$@" &
    processes+=($!)
done
for ((rank = 0; rank < world; rank++)); do
    if ! wait -n; then
        kill "${processes[@]}" 2>/dev/null
        wait
        exit 1
    fi
done
