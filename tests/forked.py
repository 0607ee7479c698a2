"""Work in a forked child, for tests of forks and of crashes.

The child never returns into pytest: what it raises is printed, and a child that hangs is ended with its stacks printed.
"""

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable

SECONDS = 90  # less than the time limit of a test; the work of a child takes milliseconds
FAILED, RAISED = 1, 70


def run_in_fork(work: Callable[[], object], *, report_crash: bool = True) -> int:
    """The exit status of a forked child that does the work; negative for the signal that ended it.

    The status is 0 unless the work returns False, raises, or hangs. `report_crash=False` is for work that crashes.
    """
    child = os.fork()
    if child == 0:
        status = RAISED
        try:
            if report_crash:
                faulthandler.register(signal.SIGALRM, chain=True)  # a timer would be a thread of the parent
            else:
                faulthandler.disable()
            signal.alarm(SECONDS)
            status = FAILED if work() is False else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
