# create with every generator, run, and delete by name.
create_test_namespace create
cd "$work"
echo color=red >one.env; echo hello >hello.txt
expect_ok "deployment.apps/web created" create deployment web --image=nginx:1 --replicas=2 --port=80
expect_exact "2 nginx:1 80" get deployment web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {..containerPort}'
expect_error "already exists" create deployment web --image=nginx:1
expect_ok "cronjob.batch/tick created" create cronjob tick --image=busybox --schedule='*/5 * * * *' -- date
expect_error 'spec.schedule: Invalid value: "often"' create cronjob tock --image=busybox --schedule=often
expect_ok "job.batch/once created" create job once --image=busybox -- sleep 1
expect_ok "job.batch/tick-now created" create job tick-now --from=cronjob/tick
expect_exact "manual" get job tick-now -o 'jsonpath={.metadata.annotations.cronjob\.kubernetes\.io/instantiate}'
expect_ok "configmap/settings created" create configmap settings --from-literal=a=b --from-file=hello.txt --from-file=other=hello.txt
expect_exact '{"a":"b","hello.txt":"hello\n","other":"hello\n"}' get configmap settings -o 'jsonpath={.data}'
expect_ok "configmap/env created" create configmap env --from-env-file=one.env
expect_ok "secret/login created" create secret generic login --from-literal=user=admin --type=example.com/login
expect_exact "YWRtaW4=" get secret login -o 'jsonpath={.data.user}'
expect_ok "secret/registry created" create secret docker-registry registry --docker-server=example.com --docker-username=u --docker-password=p
expect_exact "kubernetes.io/dockerconfigjson" get secret registry -o 'jsonpath={.type}'
if command -v openssl >/dev/null; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.crt -subj /CN=example.com -days 1 2>/dev/null
  expect_ok "secret/tls created" create secret tls tls --cert=tls.crt --key=tls.key
fi
expect_ok "service/plain created" create service clusterip plain --tcp=80:8080
expect_exact "8080" get service plain -o 'jsonpath={.spec.ports[0].targetPort}'
expect_ok "service/headless created" create service clusterip headless --clusterip=None
expect_ok "service/node created" create service nodeport node --tcp=80
expect_ok "service/balanced created" create service loadbalancer balanced --tcp=80
expect_ok "service/outside created" create service externalname outside --external-name=example.com
expect_ok "NodePort" get service node
expect_ok "ingress.networking.k8s.io/main created" create ingress main --class=c --rule='example.com/a*=plain:80,tls=tls'
expect_exact "Prefix" get ingress main -o 'jsonpath={..pathType}'
expect_ok "role.rbac.authorization.k8s.io/reader created" create role reader --verb=get,list --resource=pods,deployments.apps
expect_ok "rolebinding.rbac.authorization.k8s.io/reader created" create rolebinding reader --role=reader --user=jane --serviceaccount="$ns:robot"
expect_ok "clusterrole.rbac.authorization.k8s.io/$ns created" create clusterrole "$ns" --verb=get --non-resource-url='/logs/*'
expect_ok "clusterrolebinding.rbac.authorization.k8s.io/$ns created" create clusterrolebinding "$ns" --clusterrole="$ns" --group=g
expect_ok "clusterrole.rbac.authorization.k8s.io/$ns-all created" create clusterrole "$ns-all" --aggregation-rule="kubectl=$ns"
expect_ok "deleted" delete clusterrole,clusterrolebinding "$ns"
expect_ok "deleted" delete clusterrole "$ns-all"
expect_ok "resourcequota/limits created" create quota limits --hard=count/widgets.example.com=3,secrets=20
expect_ok "poddisruptionbudget.policy/guard created" create poddisruptionbudget guard --selector=app=web --min-available=1
expect_ok "priorityclass.scheduling.k8s.io/$ns created" create priorityclass "$ns" --value=7 --description=some
expect_ok "deleted" delete priorityclass "$ns"
expect_ok "serviceaccount/robot created" create serviceaccount robot
expect_ok "." create token robot --duration=1h --audience=there
expect_ok "pod/runner created" run runner --image=busybox --labels=run=yes --env=A=b --restart=Never --command -- sleep 1d
expect_exact '["sleep","1d"]' get pod runner -o 'jsonpath={.spec.containers[0].command}'
expect_ok "kind: Pod" run other --image=busybox --dry-run=client -o yaml
expect_ok "created (server dry run)" create deployment other --image=busybox --dry-run=server
expect_ok "created (dry run)" create namespace other --dry-run=client
expect_error "NotFound" get deployment other
expect_error 'metadata.name: Invalid value: "Big"' create configmap Big
expect_error 'namespaces "none-such" not found' create configmap a -n none-such
expect_ok 'pod "runner" deleted' delete pod runner --now
expect_ok "deleted" delete service,ingress --all
cd - >/dev/null
