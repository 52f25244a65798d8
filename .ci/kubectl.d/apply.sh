# apply: on the client and on the server, what is pruned, what is only tried; diff, replace, kustomize.
namespace apply
cm() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {set: one}}\ndata: {a: "%s"}\n---\n' "$1" "$2"; }
cm first 1 >"$work/first.yaml"; cm first 2 >"$work/changed.yaml"; cm second 1 >"$work/second.yaml"
ok "configmap/first created (dry run)" apply -f "$work/first.yaml" --dry-run=client
ok "configmap/first created (server dry run)" apply -f "$work/first.yaml" --dry-run=server
refused NotFound get configmap first
exits 1 "+  a: \"1\"" diff -f "$work/first.yaml"
ok "configmap/first created" apply -f "$work/first.yaml"
ok "configmap/first unchanged" apply -f "$work/first.yaml"
ok "" diff -f "$work/first.yaml"
exits 1 '+  a: "2"' diff -f "$work/changed.yaml"
exits 1 '+  a: "2"' diff --server-side --force-conflicts -f "$work/changed.yaml"
ok "configmap/first configured" apply -f "$work/changed.yaml"
ok 'a: "2"' apply view-last-applied configmap/first
ok "configmap/first configured" apply set-last-applied -f "$work/first.yaml"
EDIT='s/a: "1"/a: "3"/' ok "edited" apply edit-last-applied configmap/first
ok 'a: "3"' apply view-last-applied configmap/first
k apply -f - <"$work/second.yaml"; has "configmap/second created"
ok "configmap/second pruned" apply -f "$work/changed.yaml" --prune -l set=one --prune-allowlist=core/v1/ConfigMap
refused NotFound get configmap second

# On the server, whose conflicts name the manager and the field.
ok "configmap/served serverside-applied" apply --server-side --field-manager=one -f - < <(cm served 1)
refused 'conflict with "one": .data.a' apply --server-side --field-manager=two -f - < <(cm served 2)
ok "serverside-applied" apply --server-side --field-manager=two --force-conflicts -f - < <(cm served 2)
ok "manager: two" get configmap served -o yaml --show-managed-fields
ok "serverside-applied (server dry run)" apply --server-side --force-conflicts --dry-run=server -f - < <(cm served 3)
same 2 get configmap served -o 'jsonpath={.data.a}'
ok "serverside-applied" apply --server-side -f "$work/changed.yaml" --force-conflicts

# Sets of objects that remember what they hold.
export KUBECTL_APPLYSET=true
ok "created" apply --prune --applyset=all -n "$ns" -f - < <(cm kept 1; cm left 1)
ok "configmap/left pruned" apply --prune --applyset=all -n "$ns" -f - < <(cm kept 1)
refused NotFound get configmap left
unset KUBECTL_APPLYSET

# What is wrong is named, and where.
refused 'unknown field "dta"' apply -f - < <(cm wrong 1 | sed 's/^data:/dta:/')
ok 'unknown field "dta"' apply --validate=warn -f - < <(cm wrong 1 | sed 's/^data:/dta:/')
ok "configured" apply --validate=ignore -f - < <(cm wrong 1 | sed 's/^data:.*//')
refused "expected map, got" apply --server-side -f - < <(cm wrong 1 | sed 's/^data:.*/data: [1]/')
refused 'no matches for kind "Nothing"' apply -f - < <(cm wrong 1 | sed 's/ConfigMap/Nothing/')
refused "error parsing" apply -f <(echo 'a: b: c')

ok "configmap/first replaced" replace -f "$work/first.yaml"
before=$("$program" get configmap first -o 'jsonpath={.metadata.uid}')
ok "configmap/first replaced" replace --force -f "$work/first.yaml"
k get configmap first -o 'jsonpath={.metadata.uid}'; lacks "$before"
refused NotFound replace -f - < <(cm missing 1)

mkdir -p "$work/base" "$work/over"
cm settings 1 >"$work/base/settings.yaml"
printf 'resources: [settings.yaml]\n' >"$work/base/kustomization.yaml"
printf 'resources: [../base]\nnamePrefix: over-\nlabels: [{pairs: {layer: over}}]\nconfigMapGenerator: [{name: made, literals: [a=b]}]\n' >"$work/over/kustomization.yaml"
ok "name: over-settings" kustomize "$work/over"
ok "configmap/over-settings created" apply -k "$work/over"
ok "over-made-" get configmap -l layer=over -o name
ok "over-settings" get -k "$work/over"
ok "deleted" delete -k "$work/over"
mkdir -p "$work/tree/deep"; cm top 1 >"$work/tree/top.yaml"; cm deep 1 >"$work/tree/deep/deep.yaml"
ok "configmap/deep created" apply -R -f "$work/tree"
