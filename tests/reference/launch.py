"""Starting a program that may hang."""
import os
import signal
import subprocess


def run(command, timeout, environment=None):
    """Its exit status, standard output and standard error; TimeoutError when it, with all that it started, had to be killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
                               start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise TimeoutError(f"no end after {timeout} s") from None
    return process.returncode, output, errors
