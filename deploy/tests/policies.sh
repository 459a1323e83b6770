#!/usr/bin/env bash
# The chart's admission policies against a real API server on which the chart is installed: who may write which ResourceSlice, and
# with admission.marks.enabled which mark. Makes two Nodes, slices and rules of its own, and removes them.
#
#   deploy/tests/policies.sh [NAMESPACE]      $KUBECTL, or kubectl on PATH, must act as a member of system:masters
set -euo pipefail

namespace="${1:-device-taint-manager}"
kubectl="${KUBECTL:-kubectl}"
driver=gpu.devicetaint.dev
api=/apis/resource.k8s.io
versions="v1 v1beta2 v1beta1"
work="$(mktemp -d)"
checks=0

fail() { echo "policies: $*" >&2; exit 1; }

server="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.server}')"
authority="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority}')"
if [ -z "$authority" ]; then
  authority="$work/ca.crt"
  "$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$authority"
fi

# call TOKEN METHOD PATH [BODY [CONTENT-TYPE]]: the answer's code and body, as an account whose rights kubectl's own reads would exceed.
call() {
  curl --silent --show-error --cacert "$authority" --header "authorization: Bearer $1" --request "$2" \
    --header "content-type: ${5:-application/json}" ${4:+--data "$4"} --write-out '\n%{http_code}' "$server$3" > "$work/answer"
  code="$(tail -n 1 "$work/answer")"
}

# allowed|refused WHAT CODE-OR-TEXT call...: the call just made must have ended so.
allowed() {
  checks=$((checks + 1))
  [[ "$code" == 2* ]] || fail "$1: must be allowed, and was answered $code: $(cat "$work/answer")"
}
refused() {
  checks=$((checks + 1))
  [ "$code" = 403 ] || [ "$code" = 422 ] || fail "$1: must be refused, and was answered $code: $(cat "$work/answer")"
  grep -qF "$2" "$work/answer" || fail "$1: must be refused for '$2', and was for: $(cat "$work/answer")"
}

# slice VERSION NAME DRIVER NODE POOL: a slice without devices, whose form all versions share.
slice() {
  printf '{"apiVersion":"resource.k8s.io/%s","kind":"ResourceSlice","metadata":{"name":"%s"},"spec":{"driver":"%s","nodeName":"%s","pool":{"name":"%s","generation":1,"resourceSliceCount":1}}}' "$@"
}

rule() {
  printf '{"apiVersion":"resource.k8s.io/%s","kind":"DeviceTaintRule","metadata":{"name":"%s","labels":{%s}},"spec":{"deviceSelector":{"driver":"policy.example.org"},"taint":{"key":"example.org/k","effect":"NoSchedule"}}}' "$@"
}

served() { "$kubectl" get --raw "$api/$1" 2> /dev/null | grep -q "\"$2\""; }

agent_token() { "$kubectl" --namespace "$namespace" create token gpu-driver "$@"; }

clean() {
  "$kubectl" delete node policy-a policy-b --ignore-not-found > /dev/null
  "$kubectl" delete clusterrolebinding policy-stranger --ignore-not-found > /dev/null
  # What is left of slices goes by the way that is open: as the nodes.
  for node in policy-a policy-b; do
    "$kubectl" delete --raw "$api/v1/resourceslices?fieldSelector=spec.nodeName=$node" \
      --as "system:node:$node" --as-group system:nodes --as-group system:authenticated > /dev/null || true
  done
  "$kubectl" --namespace "$namespace" delete serviceaccount policy-stranger --ignore-not-found > /dev/null
  "$kubectl" delete devicetaintrules policy-mark policy-rule --ignore-not-found > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean EXIT

for node in policy-a policy-b; do
  # Nobody runs on them: they are not schedulable, and no kubelet ever says that they are ready.
  printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"%s"},"spec":{"unschedulable":true}}' "$node" | "$kubectl" create -f - > /dev/null
done
# The mightiest stranger: an account that RBAC allows everything.
"$kubectl" --namespace "$namespace" create serviceaccount policy-stranger > /dev/null
"$kubectl" create clusterrolebinding policy-stranger --clusterrole cluster-admin --serviceaccount "$namespace:policy-stranger" > /dev/null
stranger="$("$kubectl" --namespace "$namespace" create token policy-stranger)"
a="$(agent_token --bound-object-kind Node --bound-object-name policy-a)"
b="$(agent_token --bound-object-kind Node --bound-object-name policy-b)"
unbound="$(agent_token)"
slices="$api/v1/resourceslices"

# A policy that was just installed is in force a moment later: tried without effect until it is.
for _ in $(seq 50); do
  call "$stranger" POST "$slices?dryRun=All" "$(slice v1 policy-x $driver policy-a policy-a)"
  [ "$code" = 403 ] && break
  sleep 0.2
done

call "$a" POST "$slices" "$(slice v1 policy-slice-a $driver policy-a policy-a)"; allowed "an agent's slice of its own node"
call "$b" POST "$slices" "$(slice v1 policy-slice-b $driver policy-b policy-b)"; allowed "the other agent's"
call "$unbound" POST "$slices" "$(slice v1 policy-x $driver policy-a policy-a)"; refused "a token of no node" "names no node"

for version in $versions; do
  served "$version" resourceslices || { echo "policies: $version is not served here"; continue; }
  path="$api/$version/resourceslices"
  change='{"spec":{"pool":{"generation":2}}}'
  merge=application/merge-patch+json
  call "$a" POST "$path" "$(slice "$version" policy-x $driver policy-b policy-b)"; refused "$version: a slice of another node" "only slices of its own node, which is policy-a"
  call "$a" POST "$path" "$(slice "$version" policy-x $driver policy-a policy-b)"; refused "$version: a slice in another node's pool" "the pool of its own node, which is policy-a"
  call "$a" POST "$path" "$(slice "$version" policy-x other.example.org policy-a policy-a)"; refused "$version: a slice of another driver" "only slices of the driver $driver"
  call "$a" PATCH "$path/policy-slice-b" "$change" $merge; refused "$version: a change of another node's slice" "only slices of its own node, which is policy-a"
  call "$a" PATCH "$path/policy-slice-a" '{"spec":{"nodeName":"policy-b"}}' $merge; refused "$version: an own slice given to another node" "field is immutable"
  call "$a" DELETE "$path/policy-slice-b"; refused "$version: another node's slice deleted" "only slices of its own node, which is policy-a"
  call "$stranger" POST "$path" "$(slice "$version" policy-x $driver policy-a policy-a)"; refused "$version: a stranger's slice of our driver" "are written by its agents, not by system:serviceaccount:$namespace:policy-stranger"
  call "$stranger" PATCH "$path/policy-slice-a" "$change" $merge; refused "$version: a stranger's change" "are written by its agents"
  call "$stranger" DELETE "$path/policy-slice-a"; refused "$version: a slice deleted by a stranger" "are written by its agents"
  call "$stranger" DELETE "$path?fieldSelector=spec.nodeName=policy-a"; refused "$version: all slices of a node deleted by a stranger" "are written by its agents"
  call "$stranger" POST "$path" "$(slice "$version" policy-foreign other.example.org policy-a policy-a)"; allowed "$version: a stranger's slice of another driver"
  call "$stranger" DELETE "$path/policy-foreign"; allowed "$version: and its deletion"
  call "$a" PATCH "$path/policy-slice-a" "$change" $merge; allowed "$version: an agent's change of its own slice"
done

# The raw path of kubelet at its start: all slices of its node, whoever's.
"$kubectl" delete --raw "$slices?fieldSelector=spec.nodeName=policy-a" --as system:node:policy-a --as-group system:nodes \
  --as-group system:authenticated > /dev/null || fail "kubelet must be allowed to clear its node's slices"
"$kubectl" get resourceslice policy-slice-a > /dev/null 2>&1 && fail "kubelet's deletion had no effect"
"$kubectl" delete resourceslice policy-slice-b --as system:serviceaccount:kube-system:generic-garbage-collector > /dev/null \
  || fail "the garbage collector must be allowed to delete a slice"
call "$a" POST "$slices" "$(slice v1 policy-slice-a $driver policy-a policy-a)"; allowed "a slice anew"
call "$a" DELETE "$slices/policy-slice-a"; allowed "an agent's deletion of its own slice"
checks=$((checks + 2))

if "$kubectl" get validatingadmissionpolicy "marks-closed.$driver" > /dev/null 2>&1; then
  controller="$("$kubectl" --namespace "$namespace" create token device-taint-controller)"
  mark='"devicetaint.dev/managed-by":"kubectl-device"'
  for version in v1 v1beta2 v1alpha3; do
    served "$version" devicetaintrules || continue
    rules="$api/$version/devicetaintrules"
    rule "$version" policy-mark "$mark" | "$kubectl" create -f - > /dev/null || fail "$version: an administrator's mark must be allowed"
    call "$stranger" POST "$rules" "$(rule "$version" policy-x "$mark")"; refused "$version: a stranger's mark" "marks of devices are closed to"
    call "$stranger" PATCH "$rules/policy-mark" '{"metadata":{"labels":{"devicetaint.dev/managed-by":null}}}' application/merge-patch+json
    refused "$version: a mark made no mark by a stranger" "marks of devices are closed to"
    call "$stranger" DELETE "$rules/policy-mark"; refused "$version: a mark deleted by a stranger" "marks of devices are closed to"
    call "$stranger" POST "$rules" "$(rule "$version" policy-rule "")"; allowed "$version: a stranger's own rule"
    call "$stranger" PATCH "$rules/policy-rule" '{"metadata":{"labels":{"devicetaint.dev/managed-by":"x"}}}' application/merge-patch+json
    refused "$version: a rule made a mark by a stranger" "marks of devices are closed to"
    call "$stranger" DELETE "$rules/policy-rule"; allowed "$version: its deletion"
    call "$controller" DELETE "$rules/policy-mark"; allowed "$version: a mark deleted by the controller"
  done
else
  echo "policies: admission.marks is off here; marks are not looked at"
fi
echo "policies: $checks checks hold"
