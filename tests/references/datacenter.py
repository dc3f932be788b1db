"""A data centre job by job in plain Python: lists, sorting and loops, as the rules are told. Kernels are held to it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Job:
    gpus: float
    duration: float
    deadline: float
    started: float | None = None
    counted: bool = False


@dataclass
class Step:
    misses: int
    job_gpus: float
    serving: float
    p_mw: float
    t_zone: float
    backlog_gpu_h: float
    dropped_gpu_h: float


class DataCenter:
    """Two classes of jobs (train, fine-tune) with the defaults of the spec, one site."""

    def __init__(self, dt_minutes: int, queue: int = 64, n_gpus: int = 1000, force_start: bool = False) -> None:
        self.dt, self.size, self.n_gpus, self.force = dt_minutes, queue, n_gpus, force_start
        self.queues: list[list[Job]] = [[], []]
        self.running: list[list[Job]] = [[], []]
        self.t_zone = 22.0
        self.dropped: list[Job] = []

    def step(
        self, now: float, arrivals: list[list[Job]], shares: list[float], t_set: float, util: float, t_out: float
    ) -> Step:
        misses, self.dropped = 0, []
        for queue, new in zip(self.queues, arrivals, strict=True):
            for job in new:
                if len(queue) < self.size:
                    queue.append(job)
                else:
                    misses += 1
                    self.dropped.append(job)
            queue.sort(key=lambda job: job.deadline)
        held = sum(job.gpus for jobs in self.running for job in jobs)
        serving = min(round(400 * util), self.n_gpus - held)
        free = self.n_gpus - serving - held
        for kind in range(2):
            free -= self._start(kind, shares[kind] * free, free, now)
        in_use = [sum(job.gpus for job in jobs) for jobs in self.running]
        p_it = self._it_mw(serving, in_use)
        cool = self._cool(p_it, t_set, t_out)
        misses += self._finish(now + self.dt)
        dropped = sum(job.gpus * job.duration for job in self.dropped) / 60
        power, left = -(1.05 * p_it + cool), self._backlog(now + self.dt)
        return Step(misses, sum(in_use), serving, power, self.t_zone, left, dropped)

    def _start(self, kind: int, budget: float, free: float, now: float) -> float:
        taken = 0.0
        queue = self.queues[kind]
        while queue and taken + queue[0].gpus <= budget:
            taken += self._run(kind, queue.pop(0), now)
        for job in list(queue) if self.force else []:
            if job.deadline - now - job.duration < self.dt:
                if taken + job.gpus > free:
                    break
                queue.remove(job)
                taken += self._run(kind, job, now)
        return taken

    def _run(self, kind: int, job: Job, now: float) -> float:
        job.started = now
        self.running[kind].append(job)
        return job.gpus

    def _it_mw(self, serving: float, in_use: list[float]) -> float:
        watts = serving * 1100 * 0.5 + (self.n_gpus - serving - sum(in_use)) * 55
        for gpus, eta in zip(in_use, (0.90, 0.75), strict=True):
            watts += gpus * (55 + 1045 * eta)
        return watts / 1e6 + 0.5

    def _cool(self, p_it: float, t_set: float, t_out: float) -> float:
        count = math.ceil(self.dt / 5)
        cop, energy, hours = 5 * min(max(1 - 0.04 * max(t_out - 20, 0), 0.4), 1.2), 0.0, self.dt / 60 / count
        for _ in range(count):
            q = 200 * max(self.t_zone - t_set, 0)
            energy += max(q / 1000 / cop, 0.05) * hours
            self.t_zone += hours * (1000 * p_it - q + 5 * (t_out - self.t_zone)) / 500
            self.t_zone = max(self.t_zone, min(t_out, 18))
        return energy / (self.dt / 60)

    def _finish(self, until: float) -> int:
        misses = 0
        for kind in range(2):
            expired = [job for job in self.queues[kind] if job.deadline <= until]
            self.queues[kind] = [job for job in self.queues[kind] if job.deadline > until]
            misses += len(expired)
            self.dropped += expired
            for job in self.running[kind]:
                assert job.started is not None
                if not job.counted and job.deadline <= until and job.started + job.duration > job.deadline:
                    job.counted = True
                    misses += 1
            self.running[kind] = [job for job in self.running[kind] if job.started + job.duration > until]  # type: ignore[operator]
        return misses

    def _backlog(self, now: float) -> float:
        queued = sum(job.gpus * job.duration for queue in self.queues for job in queue)
        running = sum(job.gpus * (job.started + job.duration - now) for jobs in self.running for job in jobs)  # type: ignore[operator]
        return (queued + running) / 60
