"""Records the results and errors of the expressions in templates.json with the real Ansible.

Run `python record_templates.py` with ansible-core and jmespath installed. The filters `json_query` and
`k8s_config_resource_name` are in collections: the former is recorded with jmespath, the latter computed as in
kubernetes.core.
"""

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

import jmespath

FILE = Path(__file__).with_name("templates.json")
# The text before the problem in a message.
CONTEXT = re.compile(
    r"Task failed: |Finalization of task args for '[^']*' failed: |Error while resolving value for 'unset': "
    r"|Error rendering template: |The filter plugin '[^']*' failed: "
)


def name_with_hash(resource):
    def ordered(value):
        return {key: ordered(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

    name = resource["metadata"]["name"]
    fields = ["data", "kind", "name"] + (["type"] if resource["kind"] == "Secret" else [])
    values = {field: ordered({**resource, "name": name}.get(field, "")) for field in fields}
    digest = hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()
    return f"{name}-{digest[:10].translate(str.maketrans('013ae', 'ghkmt'))}"


def main():
    recorded = json.loads(FILE.read_text())
    variables, tasks = recorded["vars"], []
    for number, case in enumerate(recorded["cases"]):
        value, _, query = case["expression"].partition(" | json_query(")
        if query:
            # The argument is a literal of Python as well.
            case["result"] = jmespath.search(eval(query[:-1]), variables[value])
        elif "k8s_config_resource_name" in case["expression"]:
            case["result"] = name_with_hash(variables[case["expression"].partition(" ")[0]])
        else:
            tasks.append({"set_fact": {f"result_{number}": "{{ " + case["expression"] + " }}"}})
    for number, case in enumerate(recorded["failures"]):
        task = {"set_fact": {"unset": "{{ " + case["expression"] + " }}"}}
        tasks.append({**task, "register": f"failure_{number}", "ignore_errors": True})
    with tempfile.TemporaryDirectory() as folder:
        play, results = Path(folder, "play.yml"), Path(folder, "results.json")
        chosen = "vars | dict2items | selectattr('key', 'match', '(result|failure)_') | items2dict | to_json"
        tasks.append({"copy": {"dest": str(results), "content": "{{ " + chosen + " }}"}})
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
        subprocess.run(["ansible-playbook", play], check=True)
        for name, value in json.loads(results.read_text()).items():
            kind, _, number = name.partition("_")
            if kind == "result":
                recorded["cases"][int(number)]["result"] = value
            else:
                recorded["failures"][int(number)]["error"] = CONTEXT.split(value["msg"])[-1].strip()
    FILE.write_text(json.dumps(recorded, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
