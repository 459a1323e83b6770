#!/usr/bin/env bash
# The chart's admission policies against a real API server on which the chart is installed: who may write which ResourceSlice in which version of
# the API, and with admission.marks.enabled which mark. Makes two Nodes, slices, rules and accounts of its own, and removes them. For its time the
# agents may do everything by RBAC, and so may the strangers: what is refused here, the policies alone refuse.
#
#   deploy/tests/policies.sh [NAMESPACE]      $KUBECTL, or kubectl on PATH, must act as a member of system:masters
set -euo pipefail

namespace="${1:-device-taint-manager}"
kubectl="${KUBECTL:-kubectl}"
driver=gpu.devicetaint.dev
api=/apis/resource.k8s.io
merge=application/merge-patch+json
work="$(mktemp -d)"
checks=0

fail() { echo "policies: $*" >&2; exit 1; }

server="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.server}')"
authority="$("$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority}')"
if [ -z "$authority" ]; then
  authority="$work/ca.crt"
  "$kubectl" config view --minify --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$authority"
fi

# call WHO METHOD PATH [BODY [CONTENT-TYPE]]: the answer's code and body. WHO is a token, and after spaces a user name and groups to act as.
call() {
  local token user groups as=() group
  read -r token user groups <<< "$1"
  [ -z "$user" ] || as+=(--header "impersonate-user: $user")
  for group in $groups; do as+=(--header "impersonate-group: $group"); done
  curl --silent --show-error --cacert "$authority" --header "authorization: Bearer $token" "${as[@]}" --request "$2" \
    --header "content-type: ${5:-application/json}" ${4:+--data "$4"} --write-out '\n%{http_code}' "$server$3" > "$work/answer"
  code="$(tail -n 1 "$work/answer")"
}

# allowed|refused WHAT [TEXT]: the call just made must have ended so, and a refusal must say TEXT.
allowed() {
  checks=$((checks + 1))
  [[ "$code" == 2* ]] || fail "$1: must be allowed, and was answered $code: $(cat "$work/answer")"
}
refused() {
  checks=$((checks + 1))
  [ "$code" = 403 ] || [ "$code" = 422 ] || fail "$1: must be refused, and was answered $code: $(cat "$work/answer")"
  grep -qE "$2" "$work/answer" || fail "$1: must be refused for '$2', and was for: $(cat "$work/answer")"
}

# slice VERSION NAME DRIVER POOL WHERE [REST]: a slice; WHERE says in JSON which nodes it is of.
slice() {
  printf '{"apiVersion":"resource.k8s.io/%s","kind":"ResourceSlice","metadata":{"name":"%s"},"spec":{"driver":"%s","pool":{"name":"%s","generation":1,"resourceSliceCount":1},%s%s}}' "$1" "$2" "$3" "$4" "$5" "${6:-}"
}
of() { printf '"nodeName":"%s"' "$1"; }
everywhere='"allNodes":true'
by_label='"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["policy-a"]}]}]}'
by_device='"perDeviceNodeSelection":true'
# device VERSION: one that says itself which node it is of.
device() {
  [ "$1" = v1beta1 ] && printf ',"devices":[{"name":"d","basic":{"nodeName":"policy-a"}}]' || printf ',"devices":[{"name":"d","nodeName":"policy-a"}]'
}

rule() {
  printf '{"apiVersion":"resource.k8s.io/%s","kind":"DeviceTaintRule","metadata":{"name":"%s","labels":{%s}},"spec":{"deviceSelector":{"driver":"policy.example.org"},"taint":{"key":"example.org/k","effect":"NoSchedule"}}}' "$@"
}

served() { "$kubectl" get --raw "$api/$1" 2> /dev/null | grep -q "\"$2\""; }
token_of() { "$kubectl" --namespace "$1" create token "$2" "${@:3}"; }

clean() {
  "$kubectl" delete clusterrolebinding policy-test --ignore-not-found > /dev/null
  "$kubectl" delete node policy-a policy-b --ignore-not-found > /dev/null
  # What is left of slices goes by the way that is open: as the nodes.
  local node
  for node in policy-a policy-b; do
    "$kubectl" delete --raw "$api/v1/resourceslices?fieldSelector=spec.nodeName=$node" \
      --as "system:node:$node" --as-group system:nodes --as-group system:authenticated > /dev/null || true
  done
  "$kubectl" --namespace "$namespace" delete serviceaccount policy-stranger --ignore-not-found > /dev/null
  "$kubectl" --namespace default delete serviceaccount gpu-driver --ignore-not-found > /dev/null
  "$kubectl" delete devicetaintrules policy-mark policy-rule --ignore-not-found > /dev/null 2>&1 || true
  "$kubectl" delete devicemarks policy-mark --ignore-not-found > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean EXIT

for node in policy-a policy-b; do
  # Nobody runs on them: they are not schedulable, and no kubelet ever says that they are ready.
  printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"%s"},"spec":{"unschedulable":true}}' "$node" | "$kubectl" create -f - > /dev/null
done
"$kubectl" --namespace "$namespace" create serviceaccount policy-stranger > /dev/null
# An agent by its name, in a namespace where somebody else may make accounts.
"$kubectl" --namespace default create serviceaccount gpu-driver > /dev/null
"$kubectl" create clusterrolebinding policy-test --clusterrole cluster-admin --serviceaccount "$namespace:policy-stranger" \
  --serviceaccount "$namespace:gpu-driver" --serviceaccount default:gpu-driver > /dev/null

stranger="$(token_of "$namespace" policy-stranger)"
namesake="$(token_of default gpu-driver --bound-object-kind Node --bound-object-name policy-a)"
a="$(token_of "$namespace" gpu-driver --bound-object-kind Node --bound-object-name policy-a)"
b="$(token_of "$namespace" gpu-driver --bound-object-kind Node --bound-object-name policy-b)"
unbound="$(token_of "$namespace" gpu-driver)"
# A kubelet, and the same one where RBAC allows it everything.
kubelet_a="$stranger system:node:policy-a system:nodes system:authenticated"
mighty_kubelet_a="$kubelet_a system:masters"
collector="$stranger system:serviceaccount:kube-system:generic-garbage-collector system:serviceaccounts system:authenticated"
# An administrator, whom RBAC does not stop either.
admin="$stranger policy-admin system:masters system:authenticated"

own_node="only slices of its own node, which is policy-a"
closed="are written by its agents, not by"
slices="$api/v1/resourceslices"

# A policy that was just installed is in force a moment later: tried without effect until both are.
for _ in $(seq 100); do
  call "$stranger" POST "$slices?dryRun=All" "$(slice v1 policy-x $driver policy-a "$(of policy-a)")"; first="$code"
  call "$unbound" POST "$slices?dryRun=All" "$(slice v1 policy-x $driver policy-a "$(of policy-a)")"
  [ "$first$code" = 403403 ] && break
  sleep 0.2
done

# agents VERSION: what an agent may write, and what not.
agents() {
  local v="$1" path="$api/$1/resourceslices" bump='{"spec":{"pool":{"generation":2}}}'
  call "$a" POST "$path?dryRun=All" "$(slice "$v" policy-x $driver policy-a "$(of policy-a)")"; allowed "$v: a slice of the own node, as a dry run"
  call "$a" POST "$path?dryRun=All" "$(slice "$v" policy-x $driver policy-b "$(of policy-b)")"; refused "$v: one of another node, as a dry run" "$own_node"
  call "$a" POST "$path" "$(slice "$v" policy-x $driver policy-b "$(of policy-b)")"; refused "$v: a slice of another node" "$own_node"
  call "$a" POST "$path" "$(slice "$v" policy-x $driver policy-a "$everywhere")"; refused "$v: a slice of all nodes" "$own_node"
  call "$a" POST "$path" "$(slice "$v" policy-x $driver policy-a "$by_label")"; refused "$v: a slice of nodes by label" "$own_node"
  # Where the gate of such slices is off, the field is dropped, and a slice of no node is refused as such.
  call "$a" POST "$path" "$(slice "$v" policy-x $driver policy-a "$by_device" "$(device "$v")")"; refused "$v: a slice whose devices name their nodes" "$own_node|exactly one of"
  call "$a" POST "$path" "$(slice "$v" policy-x $driver policy-b "$(of policy-a)")"; refused "$v: a slice in another node's pool" "the pool of its own node, which is policy-a"
  call "$a" POST "$path" "$(slice "$v" policy-x other.example.org policy-a "$(of policy-a)")"; refused "$v: a slice of another driver" "only slices of the driver $driver"
  call "$unbound" POST "$path" "$(slice "$v" policy-x $driver policy-a "$(of policy-a)")"; refused "$v: a token of no node" "names no node"
  call "$unbound" PATCH "$path/policy-slice-a" "$bump" $merge; refused "$v: a change with a token of no node" "names no node"
  call "$unbound" DELETE "$path/policy-slice-a"; refused "$v: a deletion with a token of no node" "names no node"
  call "$a" PATCH "$path/policy-slice-b" "$bump" $merge; refused "$v: a change of another node's slice" "$own_node"
  call "$a" PATCH "$path/policy-slice-a" '{"spec":{"nodeName":"policy-b"}}' $merge; refused "$v: an own slice given to another node" "field is immutable"
  call "$a" PATCH "$path/policy-slice-a" '{"spec":{"driver":"other.example.org"}}' $merge; refused "$v: an own slice given to another driver" "field is immutable"
  call "$b" GET "$path/policy-slice-a"; allowed "$v: reading another node's slice"
  call "$b" PUT "$path/policy-slice-a" "$(sed '$d' "$work/answer")"; refused "$v: another node's slice replaced" "own node, which is policy-b"
  call "$a" DELETE "$path/policy-slice-b"; refused "$v: another node's slice deleted" "$own_node"
  call "$a" DELETE "$path?fieldSelector=spec.nodeName=policy-b"; refused "$v: all slices of another node deleted" "$own_node"
  call "$a" PATCH "$path/policy-slice-a" "$bump" $merge; allowed "$v: an agent's change of its own slice"
}

# strangers VERSION: what everybody else may not.
strangers() {
  local v="$1" path="$api/$1/resourceslices" bump='{"spec":{"pool":{"generation":3}}}' who
  for who in "$stranger" "$namesake" "$admin"; do
    call "$who" POST "$path" "$(slice "$v" policy-x $driver policy-a "$(of policy-a)")"; refused "$v: a slice of our driver by ${who#* }" "$closed"
    call "$who" POST "$path" "$(slice "$v" policy-x $driver policy-a "$everywhere")"; refused "$v: one of all nodes" "$closed"
    call "$who" PATCH "$path/policy-slice-a" "$bump" $merge; refused "$v: a change" "$closed"
    call "$who" DELETE "$path/policy-slice-b"; refused "$v: a deletion" "$closed"
    call "$who" DELETE "$path?fieldSelector=spec.nodeName=policy-b"; refused "$v: all slices of a node deleted" "$closed"
  done
  call "$stranger" DELETE "$path/policy-slice-a?dryRun=All"; refused "$v: a deletion as a dry run" "$closed"
  call "$stranger" POST "$path" "$(slice "$v" policy-foreign other.example.org policy-a "$(of policy-a)")"; allowed "$v: a slice of another driver"
  call "$stranger" PATCH "$path/policy-foreign" "{\"spec\":{\"driver\":\"$driver\"}}" $merge; refused "$v: it becomes one of ours" "field is immutable|$closed"
  call "$stranger" DELETE "$path/policy-foreign"; allowed "$v: its deletion"
}

# cleaners VERSION: kubelet clears its own node's slices, and no others; the garbage collector any.
cleaners() {
  local v="$1" path="$api/$1/resourceslices"
  call "$mighty_kubelet_a" POST "$path" "$(slice "$v" policy-x $driver policy-a "$(of policy-a)")"; refused "$v: a slice made by a kubelet" "$closed"
  call "$mighty_kubelet_a" PATCH "$path/policy-slice-a" '{"spec":{"pool":{"generation":4}}}' $merge; refused "$v: a slice changed by a kubelet" "$closed"
  # Two fences stand here: ours, and before it that of the plugin NodeRestriction.
  call "$mighty_kubelet_a" DELETE "$path/policy-slice-b"; refused "$v: another node's slice deleted by a kubelet" "$closed|with the same NodeName"
  call "$kubelet_a" DELETE "$path?fieldSelector=spec.nodeName=policy-a"; allowed "$v: a kubelet clears its node's slices"
  call "$admin" GET "$path/policy-slice-a"; [ "$code" = 404 ] || fail "$v: kubelet's deletion had no effect"
  call "$collector" DELETE "$path/policy-slice-b"; allowed "$v: the garbage collector deletes a slice"
}

marks() {
  local v="$1" path="$api/$1/devicetaintrules" mark='"devicetaint.dev/managed-by":"kubectl-device"' closed="marks of devices are closed to"
  call "$admin" POST "$path" "$(rule "$v" policy-mark "$mark")"; allowed "$v: an administrator's mark"
  call "$stranger" POST "$path" "$(rule "$v" policy-x "$mark")"; refused "$v: a stranger's mark" "$closed"
  call "$stranger" PATCH "$path/policy-mark" '{"metadata":{"labels":{"devicetaint.dev/managed-by":null}}}' $merge; refused "$v: a mark made no mark by a stranger" "$closed"
  call "$stranger" DELETE "$path/policy-mark"; refused "$v: a mark deleted by a stranger" "$closed"
  call "$stranger" DELETE "$path?fieldSelector=metadata.name=policy-mark"; refused "$v: marks deleted together by a stranger" "$closed"
  call "$stranger" POST "$path" "$(rule "$v" policy-rule "")"; allowed "$v: a stranger's own rule"
  call "$stranger" PATCH "$path/policy-rule" '{"metadata":{"labels":{"devicetaint.dev/managed-by":"x"}}}' $merge; refused "$v: a rule made a mark by a stranger" "$closed"
  call "$stranger" DELETE "$path/policy-rule"; allowed "$v: its deletion"
  call "$controller" DELETE "$path/policy-mark"; allowed "$v: a mark deleted by the controller"
}

# The other form of marks: every object of it is one, with the label or without.
marks_of_our_kind() {
  local path=/apis/devicetaint.dev/v1alpha1/devicemarks closed="marks of devices are closed to"
  local spec='"spec":{"deviceSelector":{"driver":"policy.example.org","pool":"p","device":"d"},"taint":{"key":"example.org/k","effect":"NoSchedule"}}'
  device_mark() { printf '{"apiVersion":"devicetaint.dev/v1alpha1","kind":"DeviceMark","metadata":{"name":"%s"},%s}' "$1" "$spec"; }
  call "$admin" POST "$path" "$(device_mark policy-mark)"; allowed "an administrator's DeviceMark"
  call "$stranger" POST "$path" "$(device_mark policy-x)"; refused "a stranger's DeviceMark" "$closed"
  call "$stranger" PATCH "$path/policy-mark" '{"spec":{"taint":{"value":"x"}}}' $merge; refused "a DeviceMark changed by a stranger" "$closed"
  call "$stranger" DELETE "$path/policy-mark"; refused "a DeviceMark deleted by a stranger" "$closed"
  call "$controller" DELETE "$path/policy-mark"; allowed "a DeviceMark deleted by the controller"
}

# each RESOURCE VERSION... -- FUNCTION...: calls functions with each version that serves it.
tried=
each() {
  local resource="$1" version; shift
  local versions=(); while [ "$1" != -- ]; do versions+=("$1"); shift; done; shift
  for version in "${versions[@]}"; do
    served "$version" "$resource" || continue
    tried="$tried $resource/$version"
    for function in "$@"; do "$function" "$version"; done
  done
}
in_turn() {
  local v="$1" name
  for name in a b; do
    call "${!name}" POST "$slices" "$(slice v1 policy-slice-$name $driver policy-$name "$(of policy-$name)")"; allowed "a slice of the agent of policy-$name"
  done
  agents "$v"; strangers "$v"; cleaners "$v"
}

each resourceslices v1 v1beta2 v1beta1 -- in_turn
call "$a" POST "$slices" "$(slice v1 policy-slice-a $driver policy-a "$(of policy-a)")"; allowed "a slice anew"
call "$a" DELETE "$slices/policy-slice-a"; allowed "an agent's deletion of its own slice"
if "$kubectl" get validatingadmissionpolicy "marks-closed.$driver" > /dev/null 2>&1; then
  controller="$(token_of "$namespace" device-taint-controller)"
  each devicetaintrules v1 v1beta2 v1alpha3 -- marks
  marks_of_our_kind
else
  echo "policies: admission.marks is off here; marks are not looked at"
fi
echo "policies: $checks checks hold ($(echo $tried))"
