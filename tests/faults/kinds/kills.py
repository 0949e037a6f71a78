"""kill -9 of a rank, or of all, at a random moment, also while files are written: the job ends soon, no file is half written, and the
next run cleans up."""
import signal

import jobs
from trial import KILLED, PASSES

SOON = 30  # seconds in which a job ends whose rank was killed, on a busy machine


def trial(t):
    rng = t.random
    ends = t.chance(0.7)
    job = jobs.drawn(t, ends, None if ends else "train_lm")
    target = rng.choice(("rank", "rank", "all"))
    writing = ends and t.chance(0.7)
    t.label = f"{job.program}: kill {target}{' while it writes' if writing else ''}"
    old, new, kill = jobs.at_a_random_moment(t, job, jobs.signalling(t, job, signal.SIGKILL, target), writing)
    ended = t.run(job.program, job.arguments, job.ranks, meddle=kill, limit_after=SOON)
    outcome = t.judge(ended, job.program, {KILLED, PASSES} if ends else {KILLED}, sent=signal.SIGKILL, spoken=False)
    jobs.check_files(t, job, old, new, outcome == PASSES)
    if outcome == KILLED and ends and t.chance(0.4):
        t.label += ", and once more"
        ended = t.run(job.program, job.arguments, job.ranks)
        if t.judge(ended, job.program, {PASSES}) == PASSES:
            jobs.check_files(t, job, old, new, True)
            t.expect_no_temporaries()
