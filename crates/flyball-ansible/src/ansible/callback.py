# Tells what ansible-playbook does: one line of JSON for each event, in the form of ansible-runner.
import functools
import json
import os

from ansible.errors import AnsibleError
from ansible.vars.manager import VariableManager

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: flyball
type: stdout
short_description: events as lines of JSON
description: [One line of JSON for each event.]
"""


# Names of facts may be computed, of what users write as well, and facts say how Ansible runs commands. So those that it acts on
# are set only if a task names them as they are. Every fact of set_fact and register goes through here.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "facts.json")) as file:
    FACTS = json.load(file)
FACTS["allowed"] += ["ansible_failed_task", "ansible_failed_result"]


def is_refused(name):
    folded = str(name).lstrip("_- ").lower()
    begins = any(folded == prefix or folded.startswith(prefix + "_") for prefix in FACTS["prefixes"])
    return (begins or folded in FACTS["names"]) and name not in FACTS["allowed"]


def checked(set_facts):
    @functools.wraps(set_facts)
    def check(self, host, facts):
        for name in facts:
            if is_refused(name):
                raise AnsibleError(
                    "a task sets the fact %r, which Ansible acts on, under a computed name: write it as it is into the task, "
                    "or into allowVariables in watches.yaml" % str(name)[:64]
                )
        return set_facts(self, host, facts)

    return check


# Without that method, the plugin cannot be loaded, and the run fails.
VariableManager.set_nonpersistent_facts = checked(VariableManager.set_nonpersistent_facts)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "flyball"

    def tell(self, event, **data):
        print(json.dumps({"event": event, "event_data": data}, default=str), flush=True)

    def result(self, event, result, **data):
        task = result._task
        res = {key: result._result[key] for key in ("msg", "changed", "period") if key in result._result}
        if task.no_log:
            res = {"msg": "the output has been hidden due to the fact that 'no_log: true' was specified for this result"}
        self.tell(event, task=task.get_name(), task_action=task.action, res=res, **data)

    def v2_runner_on_ok(self, result):
        self.result("runner_on_ok", result)

    def v2_runner_on_skipped(self, result):
        self.result("runner_on_skipped", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result("runner_on_failed", result, ignore_errors=bool(ignore_errors))

    def v2_runner_on_unreachable(self, result):
        self.result("runner_on_unreachable", result)

    def v2_playbook_on_stats(self, stats):
        names = ("ok", "changed", "failures", "dark", "skipped", "rescued", "ignored")
        self.tell("playbook_on_stats", **{name: dict(getattr(stats, name)) for name in names})
