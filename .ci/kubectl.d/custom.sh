# A custom resource, from definition to deletion, and the columns and scale of another.
namespace custom
ok created apply -f samples/crontab/definition.yaml
ok "condition met" wait --for=condition=Established crd/crontabs.stable.example.com --timeout=10s
ok "crontab.stable.example.com/my-new-cron-object created" apply -f samples/crontab/cron.yaml
ok unchanged apply -f samples/crontab/cron.yaml
ok "my-new-cron-object" get ct
ok "cronSpec: '* * * * */5'" get ct my-new-cron-object -o yaml
same "my-awesome-cron-image" get ct my-new-cron-object -o 'jsonpath={.spec.image}'
ok "crontabs * ct * stable.example.com/v1" api-resources --api-group=stable.example.com
until_ok "cronSpec" explain ct.spec --recursive
ok "my-awesome-cron-image" describe ct my-new-cron-object
ok patched patch ct my-new-cron-object --type=merge -p '{"spec":{"replicas":2}}'
ok patched patch ct my-new-cron-object --type=json -p '[{"op":"replace","path":"/spec/replicas","value":3}]'
same 3 get ct my-new-cron-object -o 'jsonpath={.spec.replicas}'
refused 'Invalid value: "integer"' patch ct my-new-cron-object --type=merge -p '{"spec":{"cronSpec":5}}'
ok labeled label ct my-new-cron-object tier=a
ok "my-new-cron-object" get ct -l tier=a
sed 's/my-awesome/my-other/' samples/crontab/cron.yaml >"$work/edited.yaml"
exits 1 "+  image: my-other-cron-image" diff -f "$work/edited.yaml"
EDIT='s/my-awesome/my-edited/' ok edited edit ct my-new-cron-object
ok serverside-applied apply --server-side --force-conflicts -f "$work/edited.yaml"
same "my-other-cron-image" get ct my-new-cron-object -o 'jsonpath={.spec.image}'
ok "created" create -f <(sed 's/name: my.*/generateName: cron-/' samples/crontab/cron.yaml)
ok "deleted" delete ct --all
ok 'unknown field "spec.imge"' apply --validate=warn -f <(sed 's/image:/imge:/' samples/crontab/cron.yaml)
refused 'unknown field "spec.imge"' apply --validate=strict -f <(sed 's/image:/imge:/' samples/crontab/cron.yaml)
ok deleted delete -f samples/crontab/definition.yaml
refused 'unknown field "spec.versions[0].schema.openAPISchema"' \
  apply -f <(sed 's/openAPIV3Schema/openAPISchema/' samples/crontab/definition.yaml)

ok serverside-applied apply --server-side -f samples/vmgroup/definition.json
ok "condition met" wait --for=condition=Established crd/vmgroups.vm.codeconnect.vmworld.com --timeout=10s
ok created apply -f samples/vmgroup/vg-1.yaml
ok LAST_MESSAGE get vg
ok scaled scale vg/vg-1 --replicas=5
ok "condition met" wait --for='jsonpath={.spec.replicas}=5' vg/vg-1 --timeout=5s
refused spec.cpu patch vg vg-1 --type=merge -p '{"spec":{"cpu":5}}'
ok patched patch vg vg-1 --subresource=status --type=merge -p '{"status":{"phase":"RUNNING"}}'
ok RUNNING get vg vg-1
ok deleted delete vg vg-1
ok deleted delete -f samples/vmgroup/definition.json
