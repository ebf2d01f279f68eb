"""The code of the native worker threads, in LLVM IR: what they run without Python, and how a launch wakes them.

A launch opens a job, cut into a share for each thread and each share into pieces. A thread takes the pieces of its own
share first, so that launches on the same arrays find in a core's caches what they left there, then those of the others.
The launching thread does the same; when no piece is left it closes the job and waits for the workers that are still
inside. One that wakes too late finds the job closed and goes back, so a launch never waits for a thread that has not
begun. Between jobs a worker spins for a while, then parks in the kernel (`futex`); waking it costs the launch some
microseconds, so it says whether it wants that. One launch at a time owns the pool; another finds it owned, and runs on
its own thread.

Words that several threads write lie on cache lines of their own.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OWNER", "POOL_BYTES", "RUN", "SHARE_BYTES", "WORKER", "pool_ir"]

SHARE_BYTES: Final = 64
"""A thread's share of a job, the next item and the end, on a cache line of its own."""

POOL_BYTES: Final = 768
"""Size of a pool's memory, zeros at first, aligned to 64 bytes; the mask of cores follows at `MASK`."""

RUN: Final = "quernel_pool_run"
"""`i32 run(pool, entry, cells, geometry, geometry stride, shares, first, end, step, workers, wakes)`.

`shares`: `SHARE_BYTES` for each thread that may take part, aligned to as many. 0 if another launch owns the pool."""

WORKER: Final = "quernel_pool_worker"
"""`ptr worker(start)`, with `start` the address of the pool's address and the worker's number; never returns."""

_EPOCH, _PARKED, _ACTIVE, _WAITING, _OPEN = 0, 64, 128, 132, 192
OWNER: Final = 320
"""Where a word lies that is not 0 while a launch has the pool."""
_ENTRY, _CELLS, _GEOMETRY, _STRIDE, _SHARES, _STEP, _WANTED, _CORE = 384, 392, 400, 408, 416, 424, 432, 436
MASK: Final = 512
MASK_BYTES: Final = 128
NUM_CORES: Final = 640

_SPINS = 2000
"""Pauses before a thread parks; 100 µs at the most."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


def pool_ir(architecture: str) -> str | None:
    """The module's text, or `None` for an architecture without one."""
    if architecture not in _FUTEX:
        return None
    futex, pause = _FUTEX[architecture], f"call void {_PAUSE[architecture]}"

    def at(name: str, offset: int, base: str = "%pool") -> str:
        return f"  {name} = getelementptr i8, ptr {base}, i64 {offset}"

    return f"""declare i64 @syscall(i64, ...)
declare void {_PAUSE[architecture].replace("i32 1", "i32")}
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @wait(ptr %word, i32 %value) {{
  %result = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 {_WAIT_PRIVATE}, i32 %value, ptr null)
  ret void
}}

define internal void @wake(ptr %word, i32 %count) {{
  %result = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 {_WAKE_PRIVATE}, i32 %count)
  ret void
}}

define internal void @work(ptr %pool, i64 %id) {{
entry:
{at("%entry.at", _ENTRY)}
{at("%cells.at", _CELLS)}
{at("%geometry.at", _GEOMETRY)}
{at("%stride.at", _STRIDE)}
{at("%shares.at", _SHARES)}
{at("%step.at", _STEP)}
{at("%wanted.at", _WANTED)}
  %run = load ptr, ptr %entry.at
  %cells = load ptr, ptr %cells.at
  %geometry.base = load ptr, ptr %geometry.at
  %stride = load i64, ptr %stride.at
  %shares = load ptr, ptr %shares.at
  %step = load i64, ptr %step.at
  %wanted.narrow = load i32, ptr %wanted.at
  %wanted = sext i32 %wanted.narrow to i64
  %offset = mul i64 %id, %stride
  %geometry = getelementptr i8, ptr %geometry.base, i64 %offset
  br label %share
share:
  %owner = phi i64 [ %id, %entry ], [ %owner.next, %following ]
  %tried = phi i64 [ 0, %entry ], [ %tried.next, %following ]
  %share.offset = mul i64 %owner, {SHARE_BYTES}
  %next = getelementptr i8, ptr %shares, i64 %share.offset
{at("%end.at", 8, "%next")}
  %end = load i64, ptr %end.at
  br label %look
look:
  %seen = load atomic i64, ptr %next monotonic, align 8
  %may.be.left = icmp slt i64 %seen, %end
  br i1 %may.be.left, label %take, label %empty
take:
  %first = atomicrmw add ptr %next, i64 %step monotonic
  %is.left = icmp slt i64 %first, %end
  br i1 %is.left, label %piece, label %empty
piece:
  %until = add i64 %first, %step
  %is.last = icmp sgt i64 %until, %end
  %bound = select i1 %is.last, i64 %end, i64 %until
  call void %run(ptr %cells, ptr %geometry, i64 %first, i64 %bound)
  br label %look
empty:
  %is.done = icmp sge i64 %tried, %wanted
  br i1 %is.done, label %done, label %following
following:
  %tried.next = add i64 %tried, 1
  %is.past = icmp sge i64 %owner, %wanted
  %owner.up = add i64 %owner, 1
  %owner.next = select i1 %is.past, i64 0, i64 %owner.up
  br label %share
done:
  ret void
}}

define internal void @leave_core(ptr %pool) {{
entry:
  %mask = alloca [{MASK_BYTES} x i8], align 8
{at("%base", MASK)}
{at("%cores.at", NUM_CORES)}
{at("%core.at", _CORE)}
  %cores = load i32, ptr %cores.at
  %core = load atomic i32, ptr %core.at monotonic, align 4
  %own = call i32 @sched_getcpu()
  %is.shared = icmp eq i32 %own, %core
  %is.choice = icmp sgt i32 %cores, 1
  %is.moved = and i1 %is.shared, %is.choice
  br i1 %is.moved, label %move, label %done
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %base, i64 {MASK_BYTES}, i1 false)
  %byte.number = lshr i32 %core, 3
  %bounded = and i32 %byte.number, {MASK_BYTES - 1}
  %byte.at = getelementptr i8, ptr %mask, i32 %bounded
  %byte = load i8, ptr %byte.at
  %bit.number = and i32 %core, 7
  %bit.wide = shl i32 1, %bit.number
  %bit = trunc i32 %bit.wide to i8
  %others = xor i8 %bit, -1
  %without = and i8 %byte, %others
  store i8 %without, ptr %byte.at
  %result = call i32 @sched_setaffinity(i32 0, i64 {MASK_BYTES}, ptr %mask)
  br label %done
done:
  ret void
}}

define ptr @{WORKER}(ptr %start) {{
entry:
  %pool = load ptr, ptr %start
{at("%number.at", 8, "%start")}
  %id = load i64, ptr %number.at
  %id.narrow = trunc i64 %id to i32
{at("%epoch", _EPOCH)}
{at("%parked", _PARKED)}
{at("%active", _ACTIVE)}
{at("%waiting", _WAITING)}
{at("%open", _OPEN)}
{at("%wanted.at", _WANTED)}
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %finish ], [ %now, %tell ]
  br label %spin
spin:
  %spins = phi i32 [ 0, %idle ], [ %spins.next, %pause ]
  %now = load atomic i32, ptr %epoch seq_cst, align 4
  %is.new = icmp ne i32 %now, %seen
  br i1 %is.new, label %enter, label %unchanged
unchanged:
  %is.tired = icmp sge i32 %spins, {_SPINS}
  br i1 %is.tired, label %park, label %pause
pause:
  %spins.here = phi i32 [ %spins, %unchanged ], [ 0, %park ]
  {pause}
  %spins.next = add i32 %spins.here, 1
  br label %spin
park:
  %before = atomicrmw add ptr %parked, i32 1 seq_cst
  call void @wait(ptr %epoch, i32 %seen)
  %after = atomicrmw sub ptr %parked, i32 1 seq_cst
  br label %pause
enter:
  %others = atomicrmw add ptr %active, i32 1 seq_cst
  %is.open = load atomic i32, ptr %open seq_cst, align 4
  %runs = icmp ne i32 %is.open, 0
  br i1 %runs, label %check, label %finish
check:
  %wanted = load i32, ptr %wanted.at
  %is.wanted = icmp sle i32 %id.narrow, %wanted
  br i1 %is.wanted, label %join, label %finish
join:
  call void @leave_core(ptr %pool)
  call void @work(ptr %pool, i64 %id)
  br label %finish
finish:
  %left = atomicrmw sub ptr %active, i32 1 seq_cst
  %is.waited.for = load atomic i32, ptr %waiting seq_cst, align 4
  %tells = icmp ne i32 %is.waited.for, 0
  br i1 %tells, label %tell, label %idle
tell:
  call void @wake(ptr %active, i32 1)
  br label %idle
}}

define i32 @{RUN}(ptr %pool, ptr %run, ptr %cells, ptr %geometry, i64 %stride, ptr %shares, i64 %first, i64 %end,
    i64 %step, i32 %workers, i32 %wakes) {{
entry:
{at("%owner", OWNER)}
{at("%epoch", _EPOCH)}
{at("%parked", _PARKED)}
{at("%active", _ACTIVE)}
{at("%waiting", _WAITING)}
{at("%open", _OPEN)}
{at("%entry.at", _ENTRY)}
{at("%cells.at", _CELLS)}
{at("%geometry.at", _GEOMETRY)}
{at("%stride.at", _STRIDE)}
{at("%shares.at", _SHARES)}
{at("%step.at", _STEP)}
{at("%wanted.at", _WANTED)}
{at("%core.at", _CORE)}
  %pair = cmpxchg ptr %owner, i32 0, i32 1 acquire monotonic
  %is.mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %is.mine, label %begin, label %owned
owned:
  ret i32 0
begin:
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr %core.at monotonic, align 4
  store ptr %run, ptr %entry.at
  store ptr %cells, ptr %cells.at
  store ptr %geometry, ptr %geometry.at
  store i64 %stride, ptr %stride.at
  store ptr %shares, ptr %shares.at
  store i64 %step, ptr %step.at
  store i32 %workers, ptr %wanted.at
  %wanted = sext i32 %workers to i64
  %threads = add i64 %wanted, 1
  %items = sub i64 %end, %first
  %pieces.up = add i64 %items, %step
  %pieces.less = sub i64 %pieces.up, 1
  %pieces = sdiv i64 %pieces.less, %step
  %each.up = add i64 %pieces, %wanted
  %each = sdiv i64 %each.up, %threads
  %length = mul i64 %each, %step
  br label %deal
deal:
  %owner.number = phi i64 [ 0, %begin ], [ %owner.number.next, %deal ]
  %start = phi i64 [ %first, %begin ], [ %stop, %deal ]
  %stop.full = add i64 %start, %length
  %is.beyond = icmp sgt i64 %stop.full, %end
  %stop = select i1 %is.beyond, i64 %end, i64 %stop.full
  %share.offset = mul i64 %owner.number, {SHARE_BYTES}
  %share = getelementptr i8, ptr %shares, i64 %share.offset
{at("%share.end", 8, "%share")}
  store atomic i64 %start, ptr %share monotonic, align 8
  store i64 %stop, ptr %share.end
  %owner.number.next = add i64 %owner.number, 1
  %is.dealt = icmp sgt i64 %owner.number.next, %wanted
  br i1 %is.dealt, label %publish, label %deal
publish:
  store atomic i32 1, ptr %open seq_cst, align 4
  %before = atomicrmw add ptr %epoch, i32 1 seq_cst
  %num.parked = load atomic i32, ptr %parked seq_cst, align 4
  %sleeps = icmp ne i32 %num.parked, 0
  %is.worth.it = icmp ne i32 %wakes, 0
  %rouses = and i1 %sleeps, %is.worth.it
  br i1 %rouses, label %rouse, label %own
rouse:
  call void @wake(ptr %epoch, i32 2147483647)
  br label %own
own:
  call void @work(ptr %pool, i64 0)
  store atomic i32 0, ptr %open seq_cst, align 4
  br label %spin
spin:
  %spins = phi i32 [ 0, %own ], [ %spins.next, %pause ]
  %inside = load atomic i32, ptr %active seq_cst, align 4
  %is.done = icmp eq i32 %inside, 0
  br i1 %is.done, label %done, label %busy
busy:
  %is.tired = icmp sge i32 %spins, {_SPINS}
  br i1 %is.tired, label %sleep, label %pause
pause:
  %spins.here = phi i32 [ %spins, %busy ], [ {_SPINS}, %sleep ]
  {pause}
  %spins.next = add i32 %spins.here, 1
  br label %spin
sleep:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  call void @wait(ptr %active, i32 %inside)
  store atomic i32 0, ptr %waiting seq_cst, align 4
  br label %pause
done:
  store atomic i32 0, ptr %owner release, align 4
  ret i32 1
}}
"""
