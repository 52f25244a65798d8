# Changes to what is there: edit, patch, label, annotate, set.
namespace change
ok created create deployment web --image=nginx:1
ok created create configmap settings --from-literal=a=1
EDIT='s/a: "1"/a: "2"/' ok "configmap/settings edited" edit configmap settings
EDIT='s/nothing/x/' ok "Edit cancelled, no changes made" edit configmap settings
same 2 get configmap settings -o 'jsonpath={.data.a}'
EDIT='s/replicas: 1/replicas: 2/' ok "deployment.apps/web edited" edit deployment web
EDIT='s/nginx:1/nginx:2/' ok '"image":"nginx:2"' edit deployment web --output-patch

ok patched patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"A","value":"b"}]}]}}}}'
same "nginx:2 b" get deployment web -o 'jsonpath={..image} {..env[0].value}'
ok patched patch configmap settings --type=merge -p '{"data":{"a":null,"b":"3"}}'
same '{"b":"3"}' get configmap settings -o 'jsonpath={.data}'
ok patched patch configmap settings --type=json -p '[{"op":"test","path":"/data/b","value":"3"},{"op":"add","path":"/data/c","value":"4"}]'
refused "the server rejected our request due to an error in our request" patch configmap settings --type=json -p '[{"op":"test","path":"/data/b","value":"9"}]'
printf 'data: {d: "5"}' >"$work/patch.yaml"; ok patched patch configmap settings --patch-file="$work/patch.yaml"
ok "patched (no change)" patch configmap settings --patch-file="$work/patch.yaml"
ok 'd: "6"' patch configmap settings -p '{"data":{"d":"6"}}' --dry-run=server -o yaml
ok 'd: "6"' patch configmap settings -p '{"data":{"d":"6"}}' --dry-run=client -o yaml
same 5 get configmap settings -o 'jsonpath={.data.d}'
"$program" get configmap settings -o yaml >"$work/settings.yaml"
ok 'e: "7"' patch --local -f "$work/settings.yaml" -p '{"data":{"e":"7"}}' -o yaml
ok patched patch deployment web --subresource=status --type=merge -p '{"status":{"collisionCount":3}}'
same 3 get deployment web -o 'jsonpath={.status.collisionCount}'
ok patched patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":1}}'
refused "spec.replicas: Invalid value" patch deployment web -p '{"spec":{"replicas":-1}}'
refused 'unrecognized type: int32' patch deployment web -p '{"spec":{"replicas":"many"}}'

ok labeled label configmap settings tier=a
refused "'tier' already has a value (a), and --overwrite is false" label configmap settings tier=b
ok labeled label configmap settings tier=b --overwrite
same "tier=b" label configmap settings --list
ok labeled label configmaps --all every=one
ok unlabeled label configmaps -l tier=b tier-
ok "not labeled" label configmap settings none-
refused "a valid label must be" label configmap settings bad=-x-
ok labeled label configmap settings a=b --resource-version="$("$program" get configmap settings -o 'jsonpath={.metadata.resourceVersion}')"
refused "the object has been modified" label configmap settings a=c --overwrite --resource-version=1
ok annotate annotate configmap settings note=a
refused "already has a value (a)" annotate configmap settings note=b
ok annotate annotate configmap settings note=b --overwrite
ok "note=b" annotate configmap settings --list
ok annotate annotate configmap settings note-
ok "annotate* (server dry run)" annotate configmap settings x=y --dry-run=server

ok "image updated" set image deployment/web nginx=nginx:3
same "nginx:3" get deployment web -o 'jsonpath={..image}'
refused 'unable to find container named "none"' set image deployment/web none=nginx:3
ok "env updated" set env deployment/web COLOR=red
ok "COLOR=red" set env deployment/web --list
ok "env updated" set env deployment/web --from=configmap/settings --prefix=S_
same "settings" get deployment web -o 'jsonpath={..env[?(@.name=="S_B")].valueFrom.configMapKeyRef.name}'
ok "env updated" set env deployment/web COLOR-
ok "resource requirements updated" set resources deployment web --limits=cpu=200m,memory=64Mi --requests=cpu=100m
same "100m 64Mi" get deployment web -o 'jsonpath={..requests.cpu} {..limits.memory}'
ok "serviceaccount updated" set serviceaccount deployment web default
ok created create service clusterip front --tcp=80
ok "selector updated" set selector service front app=other
same other get service front -o 'jsonpath={.spec.selector.app}'
ok created create rolebinding readers --clusterrole=view --user=a
ok "subjects updated" set subject rolebinding readers --user=b
