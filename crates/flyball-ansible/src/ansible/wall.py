# Landlock: the kernel restricts the files that this process and its future children may access.
# See https://docs.kernel.org/userspace-api/landlock.html. Access is granted by folder, with all that is below it.
import ctypes
import os
import stat

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
# The others up to MAKE_SYM: to remove and to create entries of a folder.
CHANGE_DIR = sum(1 << bit for bit in range(4, 13))
# These rights have been added by later versions.
REFER, TRUNCATE = 1 << 13, 1 << 14
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | CHANGE_DIR | REFER | TRUNCATE
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def restrict(grants):
    """Restricts this process to paths with these rights; returns false if the kernel does not support it."""
    zero = ctypes.c_size_t(0)
    try:
        version = call(CREATE_RULESET, None, zero, ctypes.c_uint32(CREATE_RULESET_VERSION))
    except OSError:
        return False
    handled = READ | WRITE
    for since, right in ((2, REFER), (3, TRUNCATE)):
        handled &= ~right if version < since else ~0
    attributes = ctypes.c_uint64(handled)
    ruleset = call(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(8), ctypes.c_uint32(0))
    try:
        for path, rights in grants:
            grant(ruleset, path, rights & handled)
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl failed")
        call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return True


def grant(ruleset, path, rights):
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # Other processes cannot open it either.
    try:
        rights &= ~0 if stat.S_ISDIR(os.fstat(opened).st_mode) else OF_FILES
        rule = PathBeneath(rights, opened)
        call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(RULE_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(opened)


def without(path, protected):
    """Returns the path, or, if it contains protected paths, its entries without these."""
    path = os.path.realpath(path)
    if any(path == other or path.startswith(os.path.join(other, "")) for other in protected):
        return []
    if not any(other.startswith(os.path.join(path, "")) for other in protected):
        return [path]
    try:
        entries = [os.path.join(path, name) for name in os.listdir(path)]
    except OSError:
        return []
    return [found for entry in entries if not os.path.islink(entry) for found in without(entry, protected)]
