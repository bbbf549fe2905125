"""A container init as people write it in an afternoon: the baseline."""
import os
import signal
import subprocess
import sys

child = subprocess.Popen(sys.argv[1:])


def forward(number, _frame):
    child.send_signal(number)


signal.signal(signal.SIGTERM, forward)
signal.signal(signal.SIGINT, forward)
while True:
    pid, status = os.wait()
    if pid == child.pid:
        break
if os.WIFSIGNALED(status):
    sys.exit(128 + os.WTERMSIG(status))
sys.exit(os.WEXITSTATUS(status))
