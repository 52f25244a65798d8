# apply (client-side, server-side, pruning, dry run), diff, replace and kustomize.
create_test_namespace apply
cm() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {set: one}}\ndata: {a: "%s"}\n---\n' "$1" "$2"; }
cm first 1 >"$work/first.yaml"; cm first 2 >"$work/changed.yaml"; cm second 1 >"$work/second.yaml"
expect_ok "configmap/first created (dry run)" apply -f "$work/first.yaml" --dry-run=client
expect_ok "configmap/first created (server dry run)" apply -f "$work/first.yaml" --dry-run=server
expect_error NotFound get configmap first
expect_exit 1 "+  a: \"1\"" diff -f "$work/first.yaml"
expect_ok "configmap/first created" apply -f "$work/first.yaml"
expect_ok "configmap/first unchanged" apply -f "$work/first.yaml"
expect_ok "" diff -f "$work/first.yaml"
expect_exit 1 '+  a: "2"' diff -f "$work/changed.yaml"
expect_exit 1 '+  a: "2"' diff --server-side --force-conflicts -f "$work/changed.yaml"
expect_ok "configmap/first configured" apply -f "$work/changed.yaml"
expect_ok 'a: "2"' apply view-last-applied configmap/first
expect_ok "configmap/first configured" apply set-last-applied -f "$work/first.yaml"
EDIT='s/a: "1"/a: "3"/' expect_ok "edited" apply edit-last-applied configmap/first
expect_ok 'a: "3"' apply view-last-applied configmap/first
run_kubectl apply -f - <"$work/second.yaml"; expect_output "configmap/second created"
expect_ok "configmap/second pruned" apply -f "$work/changed.yaml" --prune -l set=one --prune-allowlist=core/v1/ConfigMap
expect_error NotFound get configmap second

# Server-side apply: conflicts name the manager and the field.
expect_ok "configmap/served serverside-applied" apply --server-side --field-manager=one -f - < <(cm served 1)
expect_error 'conflict with "one": .data.a' apply --server-side --field-manager=two -f - < <(cm served 2)
expect_ok "serverside-applied" apply --server-side --field-manager=two --force-conflicts -f - < <(cm served 2)
expect_ok "manager: two" get configmap served -o yaml --show-managed-fields
expect_ok "serverside-applied (server dry run)" apply --server-side --force-conflicts --dry-run=server -f - < <(cm served 3)
expect_exact 2 get configmap served -o 'jsonpath={.data.a}'
expect_ok "serverside-applied" apply --server-side -f "$work/changed.yaml" --force-conflicts

# ApplySets.
export KUBECTL_APPLYSET=true
expect_ok "created" apply --prune --applyset=all -n "$ns" -f - < <(cm kept 1; cm left 1)
expect_ok "configmap/left pruned" apply --prune --applyset=all -n "$ns" -f - < <(cm kept 1)
expect_error NotFound get configmap left
unset KUBECTL_APPLYSET

# Validation errors name the field.
expect_error 'unknown field "dta"' apply -f - < <(cm wrong 1 | sed 's/^data:/dta:/')
expect_ok 'unknown field "dta"' apply --validate=warn -f - < <(cm wrong 1 | sed 's/^data:/dta:/')
expect_ok "configured" apply --validate=ignore -f - < <(cm wrong 1 | sed 's/^data:.*//')
expect_error "expected map, got" apply --server-side -f - < <(cm wrong 1 | sed 's/^data:.*/data: [1]/')
expect_error 'no matches for kind "Nothing"' apply -f - < <(cm wrong 1 | sed 's/ConfigMap/Nothing/')
expect_error "error parsing" apply -f <(echo 'a: b: c')

expect_ok "configmap/first replaced" replace -f "$work/first.yaml"
before=$("$program" get configmap first -o 'jsonpath={.metadata.uid}')
expect_ok "configmap/first replaced" replace --force -f "$work/first.yaml"
run_kubectl get configmap first -o 'jsonpath={.metadata.uid}'; expect_absent "$before"
expect_error NotFound replace -f - < <(cm missing 1)

mkdir -p "$work/base" "$work/over"
cm settings 1 >"$work/base/settings.yaml"
printf 'resources: [settings.yaml]\n' >"$work/base/kustomization.yaml"
printf 'resources: [../base]\nnamePrefix: over-\nlabels: [{pairs: {layer: over}}]\nconfigMapGenerator: [{name: made, literals: [a=b]}]\n' >"$work/over/kustomization.yaml"
expect_ok "name: over-settings" kustomize "$work/over"
expect_ok "configmap/over-settings created" apply -k "$work/over"
expect_ok "over-made-" get configmap -l layer=over -o name
expect_ok "over-settings" get -k "$work/over"
expect_ok "deleted" delete -k "$work/over"
mkdir -p "$work/tree/deep"; cm top 1 >"$work/tree/top.yaml"; cm deep 1 >"$work/tree/deep/deep.yaml"
expect_ok "configmap/deep created" apply -R -f "$work/tree"
