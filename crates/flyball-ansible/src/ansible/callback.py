# Tells what ansible-playbook does: one line of JSON for each event, in the form of ansible-runner, after a secret of the run.
# And it refuses what users might choose where roles compute names: variables that mean something else, and files of others.
import functools
import json
import os

from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import action_loader
from ansible.plugins.strategy import StrategyBase
from ansible.vars.manager import VariableManager

DOCUMENTATION = """
name: flyball
type: stdout
short_description: events as lines of JSON
description: [One line of JSON for each event.]
"""


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.json")) as file:
    RUN = json.load(file)
# What is run, as the author wrote it, before templates became values. A run has one host, so there is one task at a time.
ACTION = ROLE = None
NAMES = frozenset()
IS_COMPUTED = False


def note(task):
    global ACTION, ROLE, NAMES, IS_COMPUTED
    ACTION, ROLE = task.action.rpartition(".")[2], getattr(task, "_role", None)
    NAMES = {*map(str, task.args), str(task.register), "ansible_failed_task", "ansible_failed_result"}
    IS_COMPUTED = any("{{" in str(argument) or "{%" in str(argument) for argument in task.args.values())


def is_refused(name):
    folded = name.lstrip("_- ").lower()
    begins = any(folded == prefix or folded.startswith(prefix + "_") for prefix in RUN["prefixes"])
    return (begins or folded in RUN["names"] or name in RUN["own"]) and name not in RUN["allowed"]


def checked_facts(set_facts):
    @functools.wraps(set_facts)
    def check(self, host, facts):
        for name in map(str, facts):
            if ACTION == "set_fact" and name not in NAMES and is_refused(name):
                raise AnsibleError(
                    "set_fact sets %r under a computed name, and Ansible or the role acts on it: write the name literally into "
                    "the task, or into allowVariables in watches.yaml" % name[:64]
                )
        return set_facts(self, host, facts)

    return check


def check_file(path):
    if IS_COMPUTED and ACTION in ("include", "include_tasks", "include_vars"):
        folders = [*RUN["folders"], *([ROLE._role_path] if ROLE else [])]
        real = os.path.realpath(path)
        if not any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders):
            raise AnsibleError("%s reads a file outside of the project under a computed name: %r" % (ACTION, str(path)[-64:]))


def checked_vars(load_files):
    @functools.wraps(load_files)
    def check(self, filename, *args, **kwargs):
        check_file(filename)
        return load_files(self, filename, *args, **kwargs)

    return check


def checked_tasks(load):
    @functools.wraps(load)
    def check(self, included_file, *args, **kwargs):
        check_file(included_file._filename)
        return load(self, included_file, *args, **kwargs)

    return check


# Without these, the plugin cannot be loaded, and the run fails.
VariableManager.set_nonpersistent_facts = checked_facts(VariableManager.set_nonpersistent_facts)
StrategyBase._load_included_file = checked_tasks(StrategyBase._load_included_file)
INCLUDE_VARS = action_loader.get("ansible.builtin.include_vars", class_only=True)
INCLUDE_VARS._load_files = checked_vars(INCLUDE_VARS._load_files)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "flyball"

    def tell(self, event, **data):
        print("\n" + RUN["secret"] + json.dumps({"event": event, "event_data": data}, default=str), flush=True)

    def result(self, event, result, **data):
        task = result._task
        res = {key: result._result[key] for key in ("msg", "changed", "period") if key in result._result}
        for key in ("message", "reason"):  # Of include_vars, and of include_tasks.
            if key in result._result:
                res["msg"] = result._result[key]
        if task.no_log:
            res = {"msg": "the output has been hidden due to the fact that 'no_log: true' was specified for this result"}
        self.tell(event, task=task.get_name(), task_action=task.action, res=res, **data)

    def v2_playbook_on_task_start(self, task, is_conditional):
        note(task)

    def v2_playbook_on_handler_task_start(self, task):
        note(task)

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
