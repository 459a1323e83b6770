#!/usr/bin/env bash
# A real cluster leaves nothing behind: neither after `kube down`, nor when `kube up` cleans up after a crash. Needs root.
#
#   tests/real/no-trace.sh [VERSION]
set -euo pipefail
cd "$(dirname "$0")/../.."

version=${1:-1.37}
folder=$(mktemp -d /tmp/nt-XXXX)
run=$folder/run
# The name that pods' cgroup and network have: see RunDir::name.
name=dtk-$(printf %s "$run" | sha256sum | cut -c1-8)
trap 'cargo xtask kube down --run "$run"; rm -rf "$folder"' EXIT

up() {
  cargo xtask kube up --version "$version" --run "$run" >"$folder/line"
  . "$folder/line"
  kubectl=$(field kubectl)
}

field() {
  sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$run/cluster.json"
}

pid_of() {
  grep -A1 "^    \"$1\": {" "$run/cluster.json" | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p'
}

pod() {
  "$kubectl" apply -f - <<EOF
apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  containers:
    - {name: box, image: "$(field busybox_image)", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo hello; exec sleep 3600"]}
EOF
  "$kubectl" wait --for=condition=Ready pod/box --timeout=60s
  test "$("$kubectl" logs box)" = hello
  test "$("$kubectl" exec box -- echo inside)" = inside
}

# All that is left, one thing a line: nothing is what we want.
traces() {
  grep -o " $run[/ ][^ ]*" /proc/self/mounts | sed 's/^/mount/' || true
  grep -lsz "^DEVICETAINT_KUBE_RUN=$run\$" /proc/[0-9]*/environ | sed 's/^/process /' || true
  find /sys/fs/cgroup -maxdepth 2 -name "$name" | sed 's/^/cgroup /'
  ip -oneline address show label "lo:${name#dtk-}" | sed 's/^/address /'
  for interface in $interfaces; do
    test ! -e "/sys/class/net/$interface" || echo "interface $interface"
  done
  find /var/lib/cni/results -name "$name-*" 2>/dev/null | sed 's/^/file /'
  find /var/log/containers -lname "$run/*" 2>/dev/null | sed 's/^/link /'
  test ! -e "$run" || echo "folder $run"
}

# The host's ends of the pods' interfaces.
pod_interfaces() {
  grep -oh '"name":"veth[^"]*"' /var/lib/cni/results/"$name"-* | cut -d'"' -f4
}

interfaces=
up
pod
test -n "$(traces)" || { echo "the search for traces does not even find a cluster that runs"; exit 1; }
interfaces=$(pod_interfaces)

echo "two components are killed, and up is called again"
kill -9 "$(pid_of containerd)" "$(pid_of kube-apiserver)"
up
for interface in $interfaces; do
  test ! -e "/sys/class/net/$interface" || { echo "interface $interface outlived the crash"; exit 1; }
done
pod
interfaces="$interfaces $(pod_interfaces)"

cargo xtask kube down --run "$run"
left=$(traces)
if [ -n "$left" ]; then
  echo "left behind:"
  echo "$left"
  exit 1
fi
echo "nothing is left"
