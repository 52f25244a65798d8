# Who may what: auth, tokens, certificates.
namespace rights
robot=system:serviceaccount:$ns:robot
ok created create serviceaccount robot
ok created create role reader --verb=get,list --resource=configmaps
ok created create rolebinding reader --role=reader --serviceaccount="$ns:robot"
ok yes auth can-i get configmaps --as="$robot"
exits 1 no auth can-i delete configmaps --as="$robot"
exits 1 no auth can-i get configmaps --as="$robot" -n default
exits 1 no auth can-i get pods --subresource=log --as="$robot"
ok yes auth can-i '*' '*'
exits 1 "" auth can-i -q delete configmaps --as="$robot"
ok "configmaps" auth can-i --list --as="$robot"; has "selfsubjectaccessreviews.authorization.k8s.io" "[get list]"
ok yes auth can-i get /healthz --as="$robot"
exits 1 no auth can-i get pods --as=jane --as-group=developers
refused "Forbidden" get secrets --as="$robot"; has "User \"$robot\" cannot list resource \"secrets\" in API group \"\" in the namespace \"$ns\""
if since 28; then ok "system:masters" auth whoami; ok "$robot" auth whoami --as="$robot" -o 'jsonpath={.status.userInfo.username}'; fi
"$program" get role reader -o yaml | sed 's/configmaps/services/' >"$work/role.yaml"
ok "role.rbac.authorization.k8s.io/reader reconciled" auth reconcile -f "$work/role.yaml"
ok yes auth can-i get services --as="$robot"
ok yes auth can-i get configmaps --as="$robot"
ok "reconciled" auth reconcile -f "$work/role.yaml" --remove-extra-permissions
exits 1 no auth can-i get configmaps --as="$robot"

ok . create token robot --duration=20m; token=$out
"$program" config view --raw --minify -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$work/ca.crt"
server=$("$program" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
as_robot=(--kubeconfig=/dev/null --server="$server" --certificate-authority="$work/ca.crt" --namespace="$ns")
ok "No resources found" get services "${as_robot[@]}" --token="$token"
refused "Forbidden" get secrets "${as_robot[@]}" --token="$token"
refused "Unauthorized" get services "${as_robot[@]}" --token="${token}x"
ok created create configmap bound
refused "supported --bound-object-kind values are" create token robot --bound-object-kind=ConfigMap --bound-object-name=bound
ok created run holder --image=nginx:1 --overrides='{"spec":{"serviceAccountName":"robot"}}'
ok . create token robot --bound-object-kind=Pod --bound-object-name=holder
ok deleted delete serviceaccount robot

# A request of jane's, a developer.
jane=LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZ01JR0dBZ0VBTUNReERUQUxCZ05WQkFNTUJHcGhibVV4RXpBUkJnTlZCQW9NQ21SbG\
RtVnNiM0JsY25NdwpXVEFUQmdjcWhrak9QUUlCQmdncWhrak9QUU1CQndOQ0FBUUFmeitBZk1UQjJBSU9wRmV3blN5YldQeG1QeG5xCkRNeERsRmJma3Yw\
cDhxMjloMk0zclBwcnViK2dBZGxPdFZ6YmtNNHVseFpaOE9aRmNGQ1BlVjBob0FBd0NnWUkKS29aSXpqMEVBd0lEU1FBd1JnSWhBTmQrWHQ2dTA1VWVKN0\
hqek9JdVFnaUx3N0VzZWtXUzZrVHF1MzdRRG1qSwpBaUVBaVYraS8wVDFrN3cxNG1WL3d5MUJ1blJwN1hwaEIyUWRPVmZvMVpwOElXND0KLS0tLS1FTkQg\
Q0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==
for name in "$ns" "$ns-no"; do
  k create -f - <<Y
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: $name}
spec:
  request: $jane
  signerName: example.com/signer
  usages: [digital signature, client auth]
Y
  has "created"
done
ok Pending get csr "$ns"
ok approved certificate approve "$ns"
ok denied certificate deny "$ns-no"
ok Approved get csr "$ns"
ok Denied get csr "$ns-no"
ok deleted delete csr "$ns" "$ns-no"
