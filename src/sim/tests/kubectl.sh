#!/usr/bin/env bash
# A real kubectl against the small cluster: what a stranger types must work, and must look as it does on a real cluster.
#
# usage: kubectl.sh KUBECTL SIM
#   KUBECTL  a kubectl of Kubernetes 1.37
#   SIM      the sim program
#
# Each check runs a command and compares what it prints (standard output and error, ages written as AGE, and the exit code
# when it is not 0) with what is written here. Prints one line a check, and exits 1 with the differences.
set -uo pipefail

if [ $# -ne 2 ]; then
  echo "usage: $0 KUBECTL SIM" >&2
  exit 2
fi
kubectl_program=$(realpath "$1")
sim_program=$(realpath "$2")

work=$(mktemp -d)
sim_pid=
cleanup() {
  [ -z "$sim_pid" ] || kill "$sim_pid" 2>/dev/null
  wait 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT

# Discovery is cached by host and port below HOME: a port that another run used must not mislead this one.
export HOME="$work/home" KUBECONFIG="$work/sim/kubeconfig" NO_COLOR=1 EDITOR=true
mkdir -p "$HOME"

"$sim_program" up --root "$work/sim" --tls --node n1 --node n2 >"$work/ready" 2>"$work/log" &
sim_pid=$!
for _ in $(seq 300); do
  grep -q '^ready ' "$work/ready" && break
  kill -0 "$sim_pid" 2>/dev/null || break
  sleep 0.1
done
if ! grep -q '^ready kubeconfig=.* server=https://127.0.0.1:' "$work/ready"; then
  echo "the sim did not come up:" >&2
  cat "$work/ready" "$work/log" >&2
  exit 1
fi

passed=0
failed=0

kubectl() {
  timeout 30 "$kubectl_program" "$@"
}

# The output of a command, made comparable: ages, generated names, versions and trailing spaces differ from run to run.
run() {
  local code=0
  "$@" >"$work/out" 2>&1 || code=$?
  [ -z "$(tail -c 1 "$work/out")" ] || echo >>"$work/out"
  [ "$code" -eq 0 ] || echo "exit $code" >>"$work/out"
  sed -E -e 's/(^| )([0-9]+[smhd]){1,2}( |$)/\1AGE\3/g' -e 's/ +$//' -e 's/ {2,}/  /g' "$work/out"
}

# check NAME COMMAND... <<EXPECTED
check() {
  local name=$1
  shift
  cat >"$work/expected"
  run "$@" >"$work/found"
  if diff -u --label expected --label found "$work/expected" "$work/found" >"$work/diff"; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name: $*"
    sed 's/^/        /' "$work/diff"
  fi
}

# holds NAME TEXT COMMAND...: the output holds the text.
holds() {
  local name=$1 text=$2
  shift 2
  run "$@" >"$work/found"
  if grep -qF -- "$text" "$work/found"; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name: $* does not print: $text"
    sed 's/^/        /' "$work/found"
  fi
}

cat >"$work/all.yaml" <<'YAML'
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.dev}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.dev"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claim}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.dev}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "registry.example.dev/web:1"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
YAML

cat >"$work/rule.yaml" <<'YAML'
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: rule}
spec:
  deviceSelector: {driver: gpu.example.dev, pool: n1}
  taint: {key: example.dev/broken, value: "yes", effect: NoSchedule}
YAML

# What is served.
check "api-resources" kubectl api-resources --api-group=resource.k8s.io <<'EXPECTED'
NAME  SHORTNAMES  APIVERSION  NAMESPACED  KIND
deviceclasses  resource.k8s.io/v1  false  DeviceClass
devicetaintrules  resource.k8s.io/v1  false  DeviceTaintRule
resourceclaims  resource.k8s.io/v1  true  ResourceClaim
resourceclaimtemplates  resource.k8s.io/v1  true  ResourceClaimTemplate
resourceslices  resource.k8s.io/v1  false  ResourceSlice
EXPECTED
holds "version" "Server Version: v1.37" kubectl version
check "readyz" kubectl get --raw /readyz <<'EXPECTED'
ok
EXPECTED
holds "explain" "deviceSelector" kubectl explain devicetaintrule.spec

# Nodes.
check "get nodes" kubectl get nodes <<'EXPECTED'
NAME  STATUS  ROLES  AGE  VERSION
n1  Ready  <none>  AGE  v1.37.0-sim
n2  Ready  <none>  AGE  v1.37.0-sim
EXPECTED
check "cordon" kubectl cordon n2 <<'EXPECTED'
node/n2 cordoned
EXPECTED
check "a cordoned node is tainted" kubectl get node n2 -o 'jsonpath={.spec.taints[*].key}{"\n"}' <<'EXPECTED'
node.kubernetes.io/unschedulable
EXPECTED
check "get -o wide" kubectl get node n2 -o wide <<'EXPECTED'
NAME  STATUS  ROLES  AGE  VERSION  INTERNAL-IP  EXTERNAL-IP  OS-IMAGE  KERNEL-VERSION  CONTAINER-RUNTIME
n2  Ready,SchedulingDisabled  <none>  AGE  v1.37.0-sim  127.0.0.1  <none>  sim  sim  sim://0
EXPECTED
check "taint" kubectl taint node n2 a=b:NoExecute c:NoSchedule <<'EXPECTED'
node/n2 tainted
EXPECTED
check "taint, again" kubectl taint node n2 a=x:NoExecute <<'EXPECTED'
error: node n2 already has a taint(s) with same effect(s) and --overwrite is false
exit 1
EXPECTED
check "taint --overwrite" kubectl taint node n2 a=x:NoExecute --overwrite <<'EXPECTED'
node/n2 modified
EXPECTED
check "untaint by key" kubectl taint node n2 a- <<'EXPECTED'
node/n2 untainted
EXPECTED
check "untaint by key and effect" kubectl taint node n2 c:NoSchedule- <<'EXPECTED'
node/n2 untainted
EXPECTED
check "the taints of others stay" kubectl get node n2 -o 'jsonpath={.spec.taints[*].key}{"\n"}' <<'EXPECTED'
node.kubernetes.io/unschedulable
EXPECTED
check "untaint what is not there" kubectl taint node n2 zz- <<'EXPECTED'
error: taint "zz" not found
exit 1
EXPECTED
check "uncordon" kubectl uncordon n2 <<'EXPECTED'
node/n2 uncordoned
EXPECTED
check "no taint is left" kubectl get node n2 -o 'jsonpath={.spec.taints}{"\n"}' <<'EXPECTED'

EXPECTED
holds "describe node" "KubeletReady" kubectl describe node n1

# Objects, on the client's side and on the server's.
check "apply" kubectl apply -f "$work/all.yaml" -f "$work/rule.yaml" <<'EXPECTED'
deviceclass.resource.k8s.io/gpu.example.dev created
resourceclaim.resource.k8s.io/claim created
pod/web created
poddisruptionbudget.policy/web created
devicetaintrule.resource.k8s.io/rule created
EXPECTED
check "apply, again" kubectl apply -f "$work/rule.yaml" <<'EXPECTED'
devicetaintrule.resource.k8s.io/rule unchanged
EXPECTED
check "get rules" kubectl get devicetaintrules <<'EXPECTED'
NAME  DRIVER  POOL  DEVICE  TAINT  AGE
rule  gpu.example.dev  n1  *  example.dev/broken=yes:NoSchedule  AGE
EXPECTED
sed -i 's/NoSchedule/NoExecute/' "$work/rule.yaml"
holds "diff" "effect: NoExecute" kubectl diff -f "$work/rule.yaml"
check "apply a change" kubectl apply -f "$work/rule.yaml" <<'EXPECTED'
devicetaintrule.resource.k8s.io/rule configured
EXPECTED
check "a change of the spec counts" kubectl get devicetaintrule rule -o 'jsonpath={.metadata.generation} {.spec.taint.effect}{"\n"}' <<'EXPECTED'
2 NoExecute
EXPECTED
check "apply --server-side over it" kubectl apply --server-side -f "$work/rule.yaml" <<'EXPECTED'
devicetaintrule.resource.k8s.io/rule serverside-applied
EXPECTED
sed 's/NoExecute/None/' "$work/rule.yaml" >"$work/other.yaml"
holds "a conflict of owners" 'conflict with "kubectl" using resource.k8s.io/v1: .spec.taint.effect' \
  kubectl apply --server-side --field-manager=other -f "$work/other.yaml"
check "apply --force-conflicts" kubectl apply --server-side --field-manager=other --force-conflicts -f "$work/other.yaml" <<'EXPECTED'
devicetaintrule.resource.k8s.io/rule serverside-applied
EXPECTED

# What is refused, and how.
cat >"$work/wrong-level.yaml" <<'YAML'
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: wrong}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.dev}, tolerations: [{operator: Exists}]}]}}
YAML
holds "a field at the wrong level" 'strict decoding error: unknown field "spec.devices.requests[0].tolerations"' \
  kubectl create -f "$work/wrong-level.yaml"
cat >"$work/bad-toleration.yaml" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  containers: [{name: main, image: i}]
  tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 5}]
YAML
check "a toleration that breaks a rule" kubectl create -f "$work/bad-toleration.yaml" <<'EXPECTED'
The Pod "bad" is invalid: spec.tolerations[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set
exit 1
EXPECTED
holds "a namespace that is not there" 'namespaces "nowhere" not found' kubectl create -n nowhere -f "$work/bad-toleration.yaml"
check "create, again" kubectl create -f "$work/rule.yaml" <<EXPECTED
Error from server (AlreadyExists): error when creating "$work/rule.yaml": devicetaintrules.resource.k8s.io "rule" already exists
exit 1
EXPECTED
holds "a typed create sends protobuf" "this server does not read protobuf" kubectl create namespace team

# Pods, through their life.
check "wait for a condition" kubectl wait --for=condition=Ready pod/web --timeout=20s <<'EXPECTED'
pod/web condition met
EXPECTED
check "get pods" kubectl get pods <<'EXPECTED'
NAME  READY  STATUS  RESTARTS  AGE
web  1/1  Running  0  AGE
EXPECTED
check "get by label and field" kubectl get pods -l 'app in (web)' --field-selector=status.phase=Running -o name <<'EXPECTED'
pod/web
EXPECTED
holds "get -o wide shows the node" " n" kubectl get pods -o wide
check "get -o yaml" kubectl get pod web -o 'jsonpath={.apiVersion} {.kind} {.status.qosClass} {.spec.tolerations[*].tolerationSeconds}{"\n"}' <<'EXPECTED'
v1 Pod BestEffort 300 300
EXPECTED
holds "describe pod" "QoS Class:  BestEffort" kubectl describe pod web
check "a claim waits" kubectl get resourceclaims <<'EXPECTED'
NAME  STATE  AGE
claim  pending  AGE
EXPECTED
check "patch, strategic" kubectl patch pod web -p '{"metadata":{"labels":{"x":"y"}}}' <<'EXPECTED'
pod/web patched
EXPECTED
check "patch, merge" kubectl patch pod web --type=merge -p '{"metadata":{"labels":{"x":null}}}' <<'EXPECTED'
pod/web patched
EXPECTED
check "patch, JSON" kubectl patch pod web --type=json -p '[{"op":"test","path":"/metadata/labels/app","value":"web"}]' <<'EXPECTED'
pod/web patched (no change)
EXPECTED
check "label" kubectl label pod web x=z <<'EXPECTED'
pod/web labeled
EXPECTED
check "a pod's node is fixed" kubectl patch pod web -p '{"spec":{"nodeName":"n9"}}' <<'EXPECTED'
The Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
exit 1
EXPECTED

# Draining: the budget holds the one pod, then there is none any more.
node=$(kubectl get pod web -o 'jsonpath={.spec.nodeName}')
holds "drain meets the budget" "Cannot evict pod as it would violate the pod's disruption budget." \
  kubectl drain "$node" --force --timeout=2s
check "get pdb" kubectl get pdb <<'EXPECTED'
NAME  MIN AVAILABLE  MAX UNAVAILABLE  ALLOWED DISRUPTIONS  AGE
web  1  N/A  0  AGE
EXPECTED
check "delete" kubectl delete pdb web <<'EXPECTED'
poddisruptionbudget.policy "web" deleted from default namespace
EXPECTED
check "drain" kubectl drain "$node" --force --timeout=20s <<EXPECTED
node/$node already cordoned
Warning: deleting Pods that declare no controller: default/web
evicting pod default/web
pod/web evicted
node/$node drained
EXPECTED
check "nothing is left" kubectl get pods <<'EXPECTED'
No resources found in default namespace.
EXPECTED
kubectl uncordon "$node" >/dev/null

# Watching.
# Waits until a file says something, or ten seconds have passed: what follows then fails with the difference.
says() { for _ in $(seq 100); do grep -q "$1" "$2" && return; sleep 0.1; done; }
# A pod that stays Pending shows in the watch when its list is done: from then on nothing is missed.
kubectl create -f - >/dev/null <<'POD'
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sentinel"}, "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "busybox"}]}}
POD
kubectl get pods --watch --output-watch-events >"$work/watched" 2>&1 &
watch_pid=$!
says sentinel "$work/watched"
kubectl apply -f "$work/all.yaml" >/dev/null
kubectl wait --for=condition=Ready pod/web --timeout=20s >/dev/null
kubectl delete pdb web >/dev/null
check "delete waits for the kubelet" kubectl delete pod web <<'EXPECTED'
pod "web" deleted from default namespace
EXPECTED
check "wait for what is gone" kubectl wait --for=delete pod/web --timeout=5s <<'EXPECTED'
EXPECTED
says "^DELETED.*web" "$work/watched"
kill "$watch_pid" 2>/dev/null
wait "$watch_pid" 2>/dev/null
kubectl delete pod sentinel >/dev/null
check "get -w saw its life" sh -c "grep web '$work/watched' | awk '{print \$1, \$4}' | uniq | sed -n '1,2p;\$p'" <<'EXPECTED'
ADDED Pending
MODIFIED Pending
DELETED Terminating
EXPECTED

# Custom kinds, namespaces, lists.
cat >"$work/crd.yaml" <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: marks.example.dev}
spec:
  group: example.dev
  scope: Cluster
  names: {plural: marks, kind: Mark, singular: mark, shortNames: [mk]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {device: {type: string}}}}}}
    additionalPrinterColumns: [{name: Device, type: string, jsonPath: .spec.device}]
YAML
cat >"$work/mark.yaml" <<'YAML'
apiVersion: example.dev/v1
kind: Mark
metadata: {name: m}
spec: {device: gpu-0}
YAML
check "a custom kind" kubectl apply -f "$work/crd.yaml" <<'EXPECTED'
customresourcedefinition.apiextensions.k8s.io/marks.example.dev created
EXPECTED
check "is established" kubectl wait --for=condition=Established crd/marks.example.dev --timeout=5s <<'EXPECTED'
customresourcedefinition.apiextensions.k8s.io/marks.example.dev condition met
EXPECTED
check "has objects" kubectl apply -f "$work/mark.yaml" <<'EXPECTED'
mark.example.dev/m created
EXPECTED
sed -i 's/gpu-0/gpu-1/' "$work/mark.yaml"
check "which change" kubectl apply -f "$work/mark.yaml" <<'EXPECTED'
mark.example.dev/m configured
EXPECTED
check "and columns of its own" kubectl get mk <<'EXPECTED'
NAME  DEVICE
m  gpu-1
EXPECTED
cat >"$work/list.yaml" <<'YAML'
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: team}, data: {k: v}}
YAML
check "create a list" kubectl create -f "$work/list.yaml" <<'EXPECTED'
namespace/team created
configmap/a created
EXPECTED
check "get -n" kubectl get configmaps -n team <<'EXPECTED'
NAME  DATA  AGE
a  1  AGE
EXPECTED
check "delete a namespace" kubectl delete namespace team <<'EXPECTED'
namespace "team" deleted
EXPECTED
check "its objects are gone" kubectl get configmaps -n team <<'EXPECTED'
No resources found in team namespace.
EXPECTED
check "delete what is not there" kubectl delete devicetaintrule nothere <<'EXPECTED'
Error from server (NotFound): devicetaintrules.resource.k8s.io "nothere" not found
exit 1
EXPECTED

kill "$sim_pid"
wait "$sim_pid"
code=$?
sim_pid=
if [ "$code" -eq 0 ]; then
  passed=$((passed + 1))
  echo "ok      the sim stops cleanly"
else
  failed=$((failed + 1))
  echo "FAILED  the sim ended with $code"
fi

echo "kubectl against the sim: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
