#!/usr/bin/env bash
# Shows that the world, the launcher and a killed rank change nothing: each run ends with the same weights, and saw the same
# records at each step.
#
#   check.sh PROGRAM PLACE     PLACE has the stores images and labels
set -euo pipefail
program=$1 place=$2
here=$(dirname "${BASH_SOURCE[0]}")
folder=$(mktemp -d)
trap '[ -n "${KEEP:-}" ] || rm -rf "$folder"' EXIT
export LOADERX_CACHE=$folder/cache
steps=60

fail() { printf '%s\n' "$*" >&2; exit 1; }
# Which records each step drew, in the order of the ranks; of a step that was done again, the last time.
union() {
    local rank
    for rank in "$folder/$1"/*.txt; do
        awk -v rank="$(basename "$rank" .txt)" '{ seen[$1] = $0 } END { for (step in seen) print rank, seen[step] }' "$rank"
    done | sort -k2,2n -k1,1n | awk 'BEGIN { step = -1 } { if ($2 != step) { if (NR > 1) print ""; step = $2; printf "%s", $2 }
        for (i = 3; i <= NF; i++) printf " %s", $i } END { print "" }'
}
# NAME LAUNCHER...: a run, whose weights are printed.
run() {
    local name=$1
    shift
    "$@" "$program" --data "$place" --steps $steps --seen "$folder/$name" | tee "$folder/$name.out" >&2
}
same() {
    [ "$(sed 's/.*weights//' "$folder/$1.out")" = "$(sed 's/.*weights//' "$folder/one.out")" ] || fail "$1: other weights"
    cmp <(union "$1") <(union one) || fail "$1: other records"
}

run one env
[ "$(union one | wc -l)" = $steps ] || fail "one rank did not see $steps steps"
for world in 2 4 8; do
    run "script$world" "$here/launch.sh" $world
    same "script$world"
done
if command -v mpirun >/dev/null; then
    # As root, and with more ranks than cores: this is a test.
    run mpi4 mpirun -n 4 --oversubscribe --allow-run-as-root
    same mpi4
else
    printf 'mpirun is not installed: skipped\n'
fi

# Rank 1 of 4 dies at step 37; all end. They go on from the last checkpoint, step 30, as 2 ranks, and then as 8.
killed() { "$here/launch.sh" "$1" "$program" --data "$place" --checkpoint "$folder/checkpoint" --seen "$folder/killed$1" "${@:2}"; }
if killed 4 --steps $steps --die-at 37; then fail "a rank died, and nobody noticed"; fi
killed 2 --steps 50
killed 8 --steps $steps | tee "$folder/killed.out"
# What was seen before step 30, from there to 50, and from there on, each in the order of its ranks.
part() { union "$1" | awk -v from="$2" -v to="$3" '$1 >= from && $1 < to'; }
cmp <(part killed4 0 30; part killed2 30 50; part killed8 50 $steps) <(union one) || fail "after a kill: other records"
[ "$(sed 's/.*weights//' "$folder/killed.out")" = "$(sed 's/.*weights//' "$folder/one.out")" ] || fail "after a kill: other weights"
[ "$(union killed2 | head -n 1 | cut -d' ' -f1)" = 30 ] || fail "2 ranks did not go on at step 30"
printf 'every run saw the same records and ended with the same weights\n'
