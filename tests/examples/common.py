"""What the tests of the programs share."""
import resource


def expect(condition, what):
    if not condition:
        raise SystemExit(what)


def busy():
    """Seconds of processor time of all runs so far: what a busy machine does not stretch."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
