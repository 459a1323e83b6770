#!/usr/bin/env bash
# Each right of the chart's roles is needed: both programs work with their ServiceAccounts' tokens, and with
# any one right taken away a named thing fails. Against an API server on which the chart is installed, with the programs outside of
# pods. Takes rights away for moments: not for a cluster that is in use.
#
#   deploy/tests/rights.sh PROGRAMS [NAMESPACE]      PROGRAMS: the folder of gpu-driver, device-taint-controller and libnvidia_ml.so
#
# $KUBECTL, or kubectl on PATH, must act as a member of system:masters.
set -euo pipefail

programs="$(cd "$1" && pwd)"
namespace="${2:-device-taint-manager}"
kubectl="${KUBECTL:-kubectl}"
release="${RELEASE:-device-taint-manager}"
driver=gpu.devicetaint.dev
node=rights-a
work="$(mktemp -d)"
checks=0
pid=

fail() { echo "rights: $*" >&2; [ -f "$work/log" ] && tail -n 5 "$work/log" >&2; exit 1; }

server="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.server}')"
authority="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority}')"
if [ -z "$authority" ]; then
  authority="$work/ca.crt"
  "$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$authority"
fi

# The version in which this server has DeviceTaintRules: a feature gate before 1.37.
rules=
for version in v1alpha3 v1beta2 v1; do
  "$kubectl" get --raw "/apis/resource.k8s.io/$version" 2> /dev/null | grep -q '"devicetaintrules"' && rules="$version"
done
[ -n "$rules" ] || echo "rights: this server serves no DeviceTaintRules; rights on them are not looked at"

# as ACCOUNT [OPTION...]: a kubeconfig with a token of the account.
as() {
  local account="$1"; shift
  local token; token="$("$kubectl" --namespace "$namespace" create token "$account" "$@")"
  cat > "$work/$account.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "$server", certificate-authority: "$authority"}}]
users: [{name: u, user: {token: "$token"}}]
EOF
}

stop() { if [ -n "$pid" ]; then kill "$pid" 2> /dev/null || true; wait "$pid" 2> /dev/null || true; pid=; fi; }

# start PROGRAM FLAG...: in the background, with its log in $work/log; $at is its address.
start() {
  local program="$1"; shift
  # Here, not where it starts in the background: the address of the one before would be taken for its own.
  : > "$work/log"; : > "$work/out"
  "$programs/$program" "$@" --listen 127.0.0.1:0 > "$work/out" 2> "$work/log" &
  pid=$!
  until_true "listen" grep -q listening "$work/out"
  at="http://$(sed -n 's/listening on //p' "$work/out")"
}

until_true() {
  local what="$1"; shift
  for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
  fail "waited 30 s in vain for: $what"
}

# said TEXT: the program says so, in its log or in what it answers to readiness probes.
said() { grep -qF "$1" "$work/log" || curl --silent "$at/readyz" | grep -qF "$1"; }

# without ROLE VERB RESOURCE: takes a verb out of the rule for a resource, until it is really gone. `back` gives it back.
taken=
without() {
  role="$release:$1"; taken="$taken $1/$2/$3"
  place=(clusterrole); [ "$1/$3" != gpu-driver/events ] || place=(--namespace default role)
  rule="$(rules_in "$role" "${place[@]}" | grep -n "^[^ ]*\"$3\".* .*\"$2\"" | cut -d: -f1)"
  [[ "$rule" =~ ^[0-9]+$ ]] || fail "of the rules of $role one must allow $2 $3"
  rule=$((rule - 1))
  before="$("$kubectl" get "${place[@]}" "$role" -o jsonpath="{.rules[$rule].verbs}")"
  change "${before/\"$2\"/\"none\"}"
  local subresource=(); [[ "$3" == */* ]] && subresource=(--subresource "${3#*/}")
  until_true "the loss of $2 $3" can_not "$2" "${3%%/*}" "${subresource[@]}" --namespace default --as "system:serviceaccount:$namespace:$1"
}
# rules_in ROLE KIND...: resources and verbs of each rule, one rule a line.
rules_in() { local role="$1"; shift; "$kubectl" get "$@" "$role" -o jsonpath='{range .rules[*]}{.resources}{" "}{.verbs}{"\n"}{end}'; }
# Of all roles of an account.
rules_of() {
  rules_in "$release:$1" clusterrole
  [ "$1" != gpu-driver ] || rules_in "$release:$1" --namespace default role
}
change() { "$kubectl" patch "${place[@]}" "$role" --type json -p "[{\"op\":\"replace\",\"path\":\"/rules/$rule/verbs\",\"value\":$1}]" > /dev/null; }
back() { change "$before"; role=; }
can_not() { ! "$kubectl" auth can-i "$@" --quiet 2> /dev/null; }
role= place=()

clean() {
  stop
  [ -n "$role" ] && back
  "$kubectl" --namespace "$namespace" scale deployment device-taint-controller --replicas 1 > /dev/null
  "$kubectl" delete --raw "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName=$node" \
    --as "system:node:$node" --as-group system:nodes --as-group system:authenticated > /dev/null || true
  "$kubectl" delete node $node --ignore-not-found > /dev/null
  "$kubectl" --namespace "$namespace" delete pod rights --force --ignore-not-found > /dev/null 2>&1
  "$kubectl" --namespace "$namespace" delete resourceclaim rights --ignore-not-found > /dev/null
  "$kubectl" delete resourceslice rights --ignore-not-found > /dev/null
  [ -z "$rules" ] || "$kubectl" delete devicetaintrule rights rights-mark --ignore-not-found > /dev/null
  "$kubectl" delete devicemark rights-mark --ignore-not-found > /dev/null
  rm -rf "$work"
}
trap clean EXIT

printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"%s"},"spec":{"unschedulable":true}}' $node | "$kubectl" create -f - > /dev/null
as gpu-driver --bound-object-kind Node --bound-object-name $node
as device-taint-controller
mkdir -p "$work/nvml" "$work/dev" "$work/sys/bus/pci/devices/0000:1b:00.0"
cp "$programs/libnvidia_ml.so" "$work/nvml/libnvidia-ml.so.1"
control() { printf '{"gpus":[{"profile":"h100","pci":"0000:1b:00.0"%s}]}' "$1" > "$work/nvml/new" && mv "$work/nvml/new" "$work/nvml/fake-nvml.json"; }

agent() {
  rm -rf "$work/state"
  control ""
  start gpu-driver --node-name $node --kubeconfig "$work/gpu-driver.kubeconfig" --kubelet-root "$work/kubelet" --cdi-root "$work/cdi" \
    --state-dir "$work/state" --sysfs-root "$work/sys" --dev-root "$work/dev" --nvml-library "$work/nvml/libnvidia-ml.so.1" --poll-interval 200ms
}

# Asks for a claim as kubelet does: one gRPC message by hand. The answer holds the reason in plain text.
prepare() {
  local uid=11111111-2222-4333-8444-555555555555 name=rights claim message
  # namespace = 1, uid = 2, name = 3, each a tag, a length and a text; the whole is field 1 of the request.
  claim="$(printf '\\x0a\\x%02x%s\\x12\\x%02x%s\\x1a\\x%02x%s' ${#namespace} "$namespace" ${#uid} "$uid" ${#name} "$name")"
  message="$(printf '\\x0a\\x%02x' $((6 + ${#namespace} + ${#uid} + ${#name})))$claim"
  # A frame: not compressed, and the length in four bytes.
  printf "\\x00\\x00\\x00\\x00\\x$(printf %02x $((8 + ${#namespace} + ${#uid} + ${#name})))$message" > "$work/frame"
  curl --silent --http2-prior-knowledge --unix-socket "$(echo "$work/kubelet/plugins/$driver"/dra-*.sock)" --data-binary "@$work/frame" \
    --header 'content-type: application/grpc' --header 'te: trailers' --output "$work/prepared" \
    http://localhost/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources
  grep -aqF "$1" "$work/prepared"
}

owner_told() { "$kubectl" --namespace default get events --field-selector "involvedObject.name=$node,reason=GPUHasAnotherOwner" -o name | grep -q .; }

fails() { checks=$((checks + 1)); until_true "$1 without $2" said "$3"; }

# With all rights: published, a claim looked for, and nothing forbidden.
agent
until_true "published slices" said "[+]slices ok"
until_true "an answer about the claim" prepare "does not exist"
grep -aqi forbidden "$work/log" "$work/prepared" && fail "the agent lacks a right"

without gpu-driver patch resourceslices
control ',"lost":true'
fails "a taint" "patch resourceslices" "cannot patch ResourceSlice"
back; stop

agent
until_true "published slices" said "[+]slices ok"
without gpu-driver delete resourceslices
# A slice of an earlier life in the way.
printf '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"rights-stray"},"spec":{"driver":"%s","nodeName":"%s","pool":{"name":"%s","generation":1,"resourceSliceCount":1}}}' $driver $node $node \
  | "$kubectl" --kubeconfig "$work/gpu-driver.kubeconfig" create --validate=false -f - > /dev/null
fails "removing a slice" "delete resourceslices" "cannot delete ResourceSlice"
back
without gpu-driver get resourceclaims
checks=$((checks + 1)); until_true "a refused claim without get resourceclaims" prepare "forbidden"
back; stop

for verb in list watch; do
  without gpu-driver $verb resourceslices
  agent
  fails "publishing" "$verb resourceslices" "cannot $verb resource \"resourceslices\""
  back; stop
done
for verb in list watch; do
  without gpu-driver $verb devicemarks
  agent
  fails "following marks" "$verb devicemarks" "cannot $verb resource \"devicemarks\""
  back; stop
done
without gpu-driver get nodes
agent
fails "publishing" "get nodes" "cannot read node $node"
back; stop
for verb in list watch; do
  without gpu-driver $verb nodes
  agent
  fails "looking for other owners" "$verb nodes" "cannot $verb resource \"nodes\""
  back; stop
done
# A device plugin on this node: the agent says so on the Node.
"$kubectl" patch node $node --subresource status --type merge -p '{"status":{"capacity":{"nvidia.com/gpu":"1"},"allocatable":{"nvidia.com/gpu":"1"}}}' > /dev/null
without gpu-driver create events
agent
fails "an event about another owner" "create events" 'cannot create resource "events"'
back; stop
agent
until_true "an event about another owner, with all rights" owner_told
"$kubectl" patch node $node --subresource status --type merge -p '{"status":{"capacity":{"nvidia.com/gpu":"0"},"allocatable":{"nvidia.com/gpu":"0"}}}' > /dev/null
stop
"$kubectl" delete --raw "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName=$node" \
  --as "system:node:$node" --as-group system:nodes --as-group system:authenticated > /dev/null
without gpu-driver create resourceslices
agent
fails "publishing" "create resourceslices" "cannot create ResourceSlice"
back; stop

controller() { start device-taint-controller --kubeconfig "$work/device-taint-controller.kubeconfig" --device-mode enforce; }

# The installed controller would act before the one that is looked at.
"$kubectl" --namespace "$namespace" scale deployment device-taint-controller --replicas 0 > /dev/null
"$kubectl" --namespace "$namespace" wait --for delete pod --selector app.kubernetes.io/component=controller --timeout 60s > /dev/null

# A pod that holds a device of nobody, and a taint that evicts it.
"$kubectl" --namespace "$namespace" create -f - > /dev/null <<EOF
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: rights}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: $driver}}]}}
EOF
pod() {
  "$kubectl" --namespace "$namespace" delete pod rights --force --ignore-not-found > /dev/null 2>&1
  "$kubectl" --namespace "$namespace" create -f - > /dev/null <<EOF
apiVersion: v1
kind: Pod
metadata: {name: rights}
spec:
  nodeName: $node
  serviceAccountName: gpu-driver
  automountServiceAccountToken: false
  resourceClaims: [{name: gpu, resourceClaimName: rights}]
  containers: [{name: c, image: none}]
EOF
  local uid; uid="$("$kubectl" --namespace "$namespace" get pod rights -o jsonpath='{.metadata.uid}')"
  "$kubectl" --namespace "$namespace" patch resourceclaim rights --subresource status --type merge -p \
    "{\"status\":{\"allocation\":{\"devices\":{\"results\":[{\"request\":\"gpu\",\"driver\":\"rights.example.org\",\"pool\":\"p\",\"device\":\"d\"}]}},\"reservedFor\":[{\"resource\":\"pods\",\"name\":\"rights\",\"uid\":\"$uid\"}]}}" > /dev/null
}
# The device's taint: by a rule, or by its slice.
taint() {
  if [ -n "$rules" ]; then
    printf '{"apiVersion":"resource.k8s.io/%s","kind":"DeviceTaintRule","metadata":{"name":"rights"},"spec":{"deviceSelector":{"driver":"rights.example.org","pool":"p","device":"d"},"taint":{"key":"example.org/rights","effect":"NoExecute"}}}' "$rules"
  else
    printf '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"rights"},"spec":{"driver":"rights.example.org","nodeName":"%s","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"d","taints":[{"key":"example.org/rights","effect":"NoExecute"}]}]}}' $node
  fi | "$kubectl" create --validate=false -f - > /dev/null
}
# A mark of ours whose time has come.
# mark VERSION KIND
mark() {
  "$kubectl" create -f - > /dev/null <<EOF
apiVersion: $1
kind: $2
metadata:
  name: rights-mark
  labels: {devicetaint.dev/managed-by: kubectl-device}
  annotations: {devicetaint.dev/expires-at: "2020-01-01T00:00:00Z"}
spec: {deviceSelector: {driver: rights.example.org, pool: p, device: e}, taint: {key: example.org/rights, effect: NoSchedule}}
EOF
}
can_not_find() { ! "$kubectl" get "$1" rights-mark; }
metric() { curl --silent "$at/metrics" | grep -q "$1"; }

pod; taint
without device-taint-controller create pods/eviction
controller
fails "an eviction" "create pods/eviction" 'cannot create resource "pods/eviction"'
back
without device-taint-controller create events
checks=$((checks + 1)); until_true "an event not written without create events" said 'cannot create resource "events"'
back; stop
pod
controller
until_true "an eviction with all rights" metric 'evictions_total{outcome="accepted"} 1'
until_true "its event" metric 'events_total{outcome="written"} 1'
for form in ${rules:+"devicetaintrules resource.k8s.io/$rules DeviceTaintRule"} "devicemarks devicetaint.dev/v1alpha1 DeviceMark"; do
  read -r plural version kind <<< "$form"
  for verb in get delete; do
    without device-taint-controller $verb "$plural"
    mark "$version" "$kind"
    fails "the end of a mark" "$verb $plural" "cannot $verb resource \"$plural\""
    back
    until_true "the end of the mark with all rights" can_not_find "$plural"
  done
done
stop

for kind in nodes pods resourceclaims resourceslices ${rules:+devicetaintrules} devicemarks; do
  for verb in list watch; do
    # All kinds of a rule lose the verb; the program says it of each.
    without device-taint-controller $verb $kind
    controller
    fails "following" "$verb $kind" "$kind: not synced"
    back; stop
  done
done

# What no check took away may not be needed.
for account in gpu-driver device-taint-controller; do
  while read -r resources verbs; do
    for resource in $(tr -d '[]"' <<< "${resources//,/ }"); do
      for verb in $(tr -d '[]"' <<< "${verbs//,/ }"); do
        [ "$resource" = devicetaintrules ] && [ -z "$rules" ] && continue
        [[ " $taken " == *" $account/$verb/$resource "* ]] || fail "$account may $verb $resource, and no check here needs it"
      done
    done
  done < <(rules_of $account)
done
echo "rights: $checks checks hold"
