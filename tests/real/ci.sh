#!/usr/bin/env bash
# All that CI runs on a real Kubernetes: the table of scenarios, our deadlines beside upstream's, the chart and its policies and rights, the scenarios
# on what the chart installed, and that nothing is left. Two clusters at a time, for most of it is waiting. Needs root, Go, and Debian for the packages that it installs.
#
#   tests/real/ci.sh [VERSION]
#
# The time of each part is told. What fails shows the end of its log and stops nothing else; the exit code says it.
set -euo pipefail
cd "$(dirname "$0")/../.."

version="${1:-1.37}"
work="$(mktemp -d /tmp/dtci-XXXX)"
failed=

# Clusters first: their folders are below this one.
clean() {
  local cluster
  for cluster in table chart; do
    [ ! -e "$work/$cluster" ] || cargo xtask kube down --run "$work/$cluster" > /dev/null 2>&1 || true
  done
  rm -rf "$work"
}
trap clean EXIT
# Lanes that run are ended with us, each with all that it started, before what they left is cleaned.
lanes=
stop() {
  local lane
  for lane in $lanes; do kill -- "-$lane" 2> /dev/null || true; done
  # What ends in order takes a moment longer than its lane.
  for lane in $lanes; do
    for _ in $(seq 150); do kill -0 -- "-$lane" 2> /dev/null || break; sleep 0.2; done
  done
  exit 130
}
trap stop INT TERM

# part NAME COMMAND...: runs it with its log in a file, tells how long it took, and what it said of scenarios and checks.
part() {
  local name="$1" began="$SECONDS" log="$work/$1.log"; shift
  local ended=ok show=(grep -E "^scenario |not run here|checks hold|the chart holds|nothing is left")
  "$@" > "$log" 2>&1 || { ended="FAILED; its log ends with:"; show=(tail -n 60); }
  # In one piece: another lane writes too.
  printf '%s\n' "$(printf '%4s s  %s, %s s: %s\n' "$SECONDS" "$name" "$((SECONDS - began))" "$ended"; "${show[@]}" "$log" | cut -c 1-400 | sed 's/^/          /')"
  [ "$ended" = ok ]
}

up() { cargo xtask kube up --version "$version" --run "$work/$1"; }
down() { cargo xtask kube down --run "$work/$1"; }

# The table has a cluster to itself; then come others.
table() {
  part table-up up table || return 1
  local ended=0
  part table cargo xtask kube test --on "$work/table" || ended=1
  part table-down down table || ended=1
  # A cluster of its own, for in this one kube-controller-manager evicts.
  part upstream cargo xtask kube test --version "$version" --upstream as-upstream || ended=1
  part no-trace tests/real/no-trace.sh "$version" && return "$ended"
}

# The chart and what is installed by it, one after the other on one cluster.
chart() {
  part chart-up up chart || return 1
  local ended=0
  part installed cargo xtask kube test --on "$work/chart" --installed || ended=1
  part chart deploy/tests/install.sh "$work/chart" "$work/images" "$programs" || ended=1
  part chart-down down chart && return "$ended"
}

part tools cargo xtask kube build --version "$version"
part programs cargo build --workspace
part images cargo xtask image --profile debug --out "$work/images"
programs="${CARGO_TARGET_DIR:-target}/debug"

# With job control each lane is a process group of its own.
set -m
table & lanes="$!"
chart & lanes="$lanes $!"
set +m
for lane in $lanes; do wait "$lane" || failed=1; done
[ -z "$failed" ] || { echo "real cluster: not all holds, see above"; exit 1; }
echo "real cluster: all holds (Kubernetes $version, $SECONDS s)"
