#!/usr/bin/env bash
# The chart on a real cluster, as a stranger installs it: real helm, the images in containerd, both programs in pods with their own
# tokens and rights. A stand-in NVML library is mounted as the node's driver. Ends with nothing of ours left in the cluster.
#
#   eval "$(cargo xtask kube up --run RUN)"; cargo xtask image --out IMAGES; cargo build
#   deploy/tests/install.sh RUN IMAGES PROGRAMS
#
# RUN: the folder of `cargo xtask kube up`. PROGRAMS: the folder of gpu-driver, kubectl-device, device-taint-controller and libnvidia_ml.so.
set -euo pipefail

run="$(cd "$1" && pwd)" images="$(cd "$2" && pwd)" programs="$(cd "$3" && pwd)"
here="$(cd "$(dirname "$0")" && pwd)"
chart="$here/../chart"
name=device-taint-manager
# One key of cluster.json: each has a line of its own.
of_cluster() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$run/cluster.json"; }
helm="$(of_cluster helm)" ctr="$(of_cluster ctr)" address="$(of_cluster node_address)" busybox="$(of_cluster busybox_image)"
KUBECONFIG="$(of_cluster kubeconfig)" KUBECTL="$(of_cluster kubectl)"
export KUBECONFIG KUBECTL
work="$(mktemp -d)"
node="$run/stand-in"

kubectl() { "$KUBECTL" "$@"; }
# The plugin, as kubectl would run it.
device() { "$programs/kubectl-device" "$@"; }
step() { printf '%4s s  %s\n' "$SECONDS" "$*"; }
fail() {
  echo "install: $*" >&2
  kubectl --namespace $name get pods >&2 || true
  kubectl --namespace $name logs daemonset/gpu-driver --tail 10 >&2 || true
  exit 1
}
until_true() {
  local what="$1"; shift
  for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
  fail "waited 60 s in vain for: $what"
}
says() { local text="$1"; shift; "$@" | grep -qF -- "$text"; }
clean() {
  # Pods before the agent: without it kubelet cannot end their claims.
  kubectl delete pod,resourceclaim install --ignore-not-found --timeout 30s > /dev/null 2>&1 || true
  "$helm" uninstall $name --namespace $name --ignore-not-found > /dev/null 2>&1 || true
  kubectl delete namespace $name --ignore-not-found --timeout 60s > /dev/null 2>&1 || true
  kubectl delete node install-gone --ignore-not-found > /dev/null 2>&1 || true
  kubectl delete crd devicemarks.devicetaint.dev --ignore-not-found > /dev/null 2>&1 || true
  rm -rf "$work" "$node"
}
trap clean EXIT

step "images"
for image in gpu-driver device-taint-controller; do
  "$ctr" --address "$(of_cluster containerd_address)" --namespace k8s.io images import "$images/$image.tar" > "$work/ctr" 2>&1 || fail "$(cat "$work/ctr")"
done

# The node's driver: a library, its cards in sysfs, and nodes that are no GPUs.
rm -rf "$node"
mkdir -p "$node/lib" "$node/dev" "$node/sys/bus/pci/devices/0000:1b:00.0" "$node/sys/bus/pci/devices/0000:3b:00.0"
cp "$programs/libnvidia_ml.so" "$node/lib/libnvidia-ml.so.1"
mknod "$node/dev/nvidia0" c 1 3
mknod "$node/dev/nvidiactl" c 1 5
cards() { printf '{"gpus":[{"profile":"h100","pci":"0000:1b:00.0"},{"profile":"h100","pci":"0000:3b:00.0"%s}]}' "$1" > "$node/lib/new" && mv "$node/lib/new" "$node/lib/fake-nvml.json"; }
cards ""

server="$(of_cluster server)"
cat > "$work/values.yaml" <<EOF
# No kube-proxy runs here: the server is reached by its own address, and by host network.
apiServer: {host: 127.0.0.1, port: ${server##*:}}
agent:
  hostNetwork: true
  # Two clusters may stand side by side on one machine.
  metrics: {address: $address, port: 29400}
  hostPaths:
    kubelet: $(of_cluster kubelet_root)
    cdi: $(of_cluster cdi_root)
    state: $node/state
    sysfs: $node/sys
    dev: $node/dev
  nvml: {hostRoot: $node, mountPropagation: None, libraries: [/usr/lib64/libnvidia-ml.so.1, /lib/libnvidia-ml.so.1]}
  pollInterval: 500ms
controller:
  hostNetwork: true
  metrics: {address: $address, port: 29401}
  deviceMode: enforce
EOF
# install OPTION...: installs or changes the release, and waits until all of it is ready.
install() {
  "$helm" upgrade --install $name "$chart" --namespace $name --create-namespace --reset-values --values "$work/values.yaml" "$@" \
    --wait --timeout 120s > "$work/helm" 2>&1 || fail "helm: $(cat "$work/helm")"
}
taints() { kubectl get resourceslices --output jsonpath='{.items[*].spec.devices[*].taints[*].key}'; }

step "helm lint, and a wrong type is refused with its name"
"$helm" lint --quiet "$chart" > "$work/helm" 2>&1 || fail "$(cat "$work/helm")"
"$helm" template $name "$chart" --set agent.metrics.port=http > "$work/helm" 2>&1 && fail "a port that is no number must be refused"
grep -qF "at '/agent/metrics/port': got string, want integer" "$work/helm" || fail "the refusal must name the value: $(cat "$work/helm")"

step "helm install, without privileges: with stand-in devices this proves nothing about access to devices"
install --set agent.privileged=false
says "[+]registration ok" curl --silent "http://$address:29400/readyz" || fail "the agent is not registered"

step "helm upgrade to the default, a privileged agent"
install --set admission.marks.enabled=true
says "[+]slices ok" curl --silent "http://$address:29400/readyz" || fail "the agent has published nothing"
[ "$(device list | grep -c Healthy)" = 2 ] || fail "two healthy devices must be listed"

step "a pod gets a device"
kubectl create -f - > /dev/null <<EOF
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: install}
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.devicetaint.dev
          selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].uuid == "$(device list | awk '/gpu-0000-1b-00-0/ {print $3}')"'}}]
---
apiVersion: v1
kind: Pod
metadata: {name: install}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimName: install}]
  containers:
    - name: c
      image: $busybox
      command: [sh, -c, "env; ls /dev; sleep 1000"]
      resources: {claims: [{name: gpu}]}
EOF
kubectl wait pod/install --for condition=Ready --timeout 60s > /dev/null || fail "$(kubectl describe pod install)"
until_true "the card in the pod's environment" says DEVICETAINT_GPU_0000_1B_00_0=GPU- kubectl logs install
until_true "the card's node in the pod" says nvidia0 kubectl logs install
# Kubernetes 1.34 and 1.35 have this behind a gate (ResourceHealthStatus).
[[ "$(of_cluster version)" == 1.3[45].* ]] || until_true "the card's health in the pod's status" says '"health":"Healthy"' kubectl get pod install --output jsonpath='{.status.containerStatuses[0].allocatedResourcesStatus}'

step "a card falls off the bus, and comes back"
cards ',"lost":true'
until_true "the taint" says gpu.devicetaint.dev/lost taints
cards ""
until_true "its end" eval '! says gpu.devicetaint.dev/lost taints'

# By a rule, or where those are not served by a DeviceMark that the agent publishes. Where slices keep no taints there is neither.
if device taint n1/gpu-0000-1b-00-0 devicetaint.dev/maintenance=fan:NoExecute --reason "replace a fan" > "$work/mark" 2>&1; then
  step "a mark ($(grep -o 'Device[A-Z][A-Za-z]* dt-' "$work/mark" | cut -d' ' -f1)) evicts the pod, with the reason"
  kubectl wait pod/install --for delete --timeout 60s > /dev/null || fail "the pod is still there"
  until_true "the event" says "replace a fan" kubectl get events --field-selector involvedObject.name=install
  device untaint n1/gpu-0000-1b-00-0 devicetaint.dev/maintenance > /dev/null
else
  grep -qF "gate DRADeviceTaints" "$work/mark" || fail "the refusal of a mark must name the gate: $(cat "$work/mark")"
  step "no device taints here: no mark, and the pod is deleted"
  kubectl delete pod install --timeout 60s > /dev/null || fail "the pod does not end"
fi

step "a Node goes, and the garbage collector takes its slices"
printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"install-gone"},"spec":{"unschedulable":true}}' | kubectl create -f - > /dev/null
token="$(kubectl --namespace $name create token gpu-driver --bound-object-kind Node --bound-object-name install-gone)"
printf '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"install-gone","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"install-gone","uid":"%s"}]},"spec":{"driver":"gpu.devicetaint.dev","nodeName":"install-gone","pool":{"name":"install-gone","generation":1,"resourceSliceCount":1}}}' \
  "$(kubectl get node install-gone --output jsonpath='{.metadata.uid}')" > "$work/slice"
kubectl --token "$token" create --validate=false -f "$work/slice" > /dev/null \
  || fail "an agent must be allowed to write the slice of its node"
kubectl delete node install-gone > /dev/null
kubectl wait resourceslice/install-gone --for delete --timeout 60s > /dev/null || fail "the slice of a Node that is gone is still there"

step "policies"
"$here/policies.sh" $name
step "rights"
"$here/rights.sh" "$programs" $name

step "helm uninstall, and kubelet takes the slices away"
kubectl delete resourceclaim install > /dev/null
"$helm" uninstall $name --namespace $name --wait > /dev/null
kubectl wait resourceslice --all --for delete --timeout 90s > /dev/null 2>&1 || true
[ -z "$(kubectl get resourceslices --output name)" ] || fail "slices are left"
left="$(kubectl --namespace default get roles,rolebindings,clusterroles,clusterrolebindings,deviceclasses,validatingadmissionpolicies,validatingadmissionpolicybindings --output name | grep -E 'gpu[.]devicetaint[.]dev|device-taint-manager' || true)"
[ -z "$left" ] || fail "left behind: $left"
kubectl get crd devicemarks.devicetaint.dev > /dev/null || fail "helm must not take marks of people away"
step "the chart holds"
