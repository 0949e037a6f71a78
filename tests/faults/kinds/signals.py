"""Signals that ask to end, at a random moment, to a rank, to mpiexec, or to both as a terminal sends them: the job ends soon and leaves
no temporary file."""
import signal

import jobs
from kinds.kills import SOON
from trial import KILLED, PASSES


def trial(t):
    rng = t.random
    number = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ))
    # Programs may ignore SIGXFSZ, since a write that is refused says so, and mpiexec has its ranks ignore SIGHUP.
    alone = number == signal.SIGHUP and t.chance(0.4)
    may_be_ignored = number in (signal.SIGXFSZ, signal.SIGHUP) and not alone
    ends = may_be_ignored or not alone and t.chance(0.6)
    job = jobs.drawn(t, ends, None if ends else "train_lm", 1 if alone else None)
    target = rng.choice(("rank", "launcher", "group", "all"))
    writing = ends and t.chance(0.5)
    t.label = f"{job.program}{'' if job.ranks == 1 else ' on ranks'}: {number.name} to {'it' if job.ranks == 1 else target}{' while it writes' if writing else ''}"
    old, new, disturbance = jobs.at_a_random_moment(t, job, jobs.signalling(t, job, number, target), writing)
    ended = t.run(job.program, job.arguments, job.ranks, meddle=disturbance, limit_after=40 if may_be_ignored else SOON)
    outcome = t.judge(ended, job.program, {KILLED, PASSES} if ends else {KILLED}, sent=number, spoken=False)
    jobs.check_files(t, job, old, new, outcome == PASSES)
    # mpiexec dies of these two at once, and what is left of MPICH kills the ranks; the next run cleans up.
    if not (job.ranks > 1 and number in (signal.SIGXFSZ, signal.SIGHUP) and target in ("launcher", "group")):
        t.expect_no_temporaries()
