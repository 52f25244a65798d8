# create, with every generator; run; delete by name.
namespace create
cd "$work"
echo color=red >one.env; echo hello >hello.txt
ok "deployment.apps/web created" create deployment web --image=nginx:1 --replicas=2 --port=80
same "2 nginx:1 80" get deployment web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {..containerPort}'
refused "already exists" create deployment web --image=nginx:1
ok "cronjob.batch/tick created" create cronjob tick --image=busybox --schedule='*/5 * * * *' -- date
refused 'spec.schedule: Invalid value: "often"' create cronjob tock --image=busybox --schedule=often
ok "job.batch/once created" create job once --image=busybox -- sleep 1
ok "job.batch/tick-now created" create job tick-now --from=cronjob/tick
same "manual" get job tick-now -o 'jsonpath={.metadata.annotations.cronjob\.kubernetes\.io/instantiate}'
ok "configmap/settings created" create configmap settings --from-literal=a=b --from-file=hello.txt --from-file=other=hello.txt
same '{"a":"b","hello.txt":"hello\n","other":"hello\n"}' get configmap settings -o 'jsonpath={.data}'
ok "configmap/env created" create configmap env --from-env-file=one.env
ok "secret/login created" create secret generic login --from-literal=user=admin --type=example.com/login
same "YWRtaW4=" get secret login -o 'jsonpath={.data.user}'
ok "secret/registry created" create secret docker-registry registry --docker-server=example.com --docker-username=u --docker-password=p
same "kubernetes.io/dockerconfigjson" get secret registry -o 'jsonpath={.type}'
if command -v openssl >/dev/null; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.crt -subj /CN=example.com -days 1 2>/dev/null
  ok "secret/tls created" create secret tls tls --cert=tls.crt --key=tls.key
fi
ok "service/plain created" create service clusterip plain --tcp=80:8080
same "8080" get service plain -o 'jsonpath={.spec.ports[0].targetPort}'
ok "service/headless created" create service clusterip headless --clusterip=None
ok "service/node created" create service nodeport node --tcp=80
ok "service/balanced created" create service loadbalancer balanced --tcp=80
ok "service/outside created" create service externalname outside --external-name=example.com
ok "NodePort" get service node
ok "ingress.networking.k8s.io/way created" create ingress way --class=c --rule='example.com/a*=plain:80,tls=tls'
same "Prefix" get ingress way -o 'jsonpath={..pathType}'
ok "role.rbac.authorization.k8s.io/reader created" create role reader --verb=get,list --resource=pods,deployments.apps
ok "rolebinding.rbac.authorization.k8s.io/reader created" create rolebinding reader --role=reader --user=jane --serviceaccount="$ns:robot"
ok "clusterrole.rbac.authorization.k8s.io/$ns created" create clusterrole "$ns" --verb=get --non-resource-url='/logs/*'
ok "clusterrolebinding.rbac.authorization.k8s.io/$ns created" create clusterrolebinding "$ns" --clusterrole="$ns" --group=g
ok "clusterrole.rbac.authorization.k8s.io/$ns-all created" create clusterrole "$ns-all" --aggregation-rule="kubectl=$ns"
ok "deleted" delete clusterrole,clusterrolebinding "$ns"
ok "deleted" delete clusterrole "$ns-all"
ok "resourcequota/limits created" create quota limits --hard=count/widgets.example.com=3,secrets=20
ok "poddisruptionbudget.policy/guard created" create poddisruptionbudget guard --selector=app=web --min-available=1
ok "priorityclass.scheduling.k8s.io/$ns created" create priorityclass "$ns" --value=7 --description=some
ok "deleted" delete priorityclass "$ns"
ok "serviceaccount/robot created" create serviceaccount robot
ok "." create token robot --duration=1h --audience=there
ok "pod/runner created" run runner --image=busybox --labels=run=yes --env=A=b --restart=Never --command -- sleep 1d
same '["sleep","1d"]' get pod runner -o 'jsonpath={.spec.containers[0].command}'
ok "kind: Pod" run other --image=busybox --dry-run=client -o yaml
ok "created (server dry run)" create deployment other --image=busybox --dry-run=server
ok "created (dry run)" create namespace other --dry-run=client
refused "NotFound" get deployment other
refused 'metadata.name: Invalid value: "Big"' create configmap Big
refused 'namespaces "none-such" not found' create configmap a -n none-such
ok 'pod "runner" deleted' delete pod runner --now
ok "deleted" delete service,ingress --all
cd - >/dev/null
