//! Appends reports to the log: group commit.
//!
//! The first report into an idle writer goes at once. Reports that arrive while a PUT is in flight, or within
//! [`TOGETHER`] of the last one, go together in the next. So a replica writes at most 20 objects a second,
//! however many sites report, and nobody waits longer than that and a PUT. A report is acknowledged only
//! after its object is in the record; what waits is bounded, and the rest is told to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::compress;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use ulid::Ulid;

use crate::objects::{Condition, Objects, ObjectsError, PutOutcome};
use crate::record::{self, Report, STATUS_LOG_LIMIT, StatusLog};

/// The least time between two PUTs.
const APART: Duration = Duration::from_millis(50);
/// How long a report waits for others that share its PUT: a fleet that is calm reports all the time, too, and each
/// PUT is paid for. Nobody waits for a report but the site that sent it.
pub const TOGETHER: Duration = Duration::from_millis(500);
/// With so many that wait, no longer than [`APART`].
const FULL_SOON: usize = 200;
/// The most reports of one PUT.
const MOST_REPORTS: usize = 2000;
/// The most bytes of one PUT, before compression: the last report may go beyond it.
const MOST_BYTES: usize = 4 << 20;
/// How many PUTs may be in flight: one that hangs does not hold up all the others.
const IN_FLIGHT: usize = 4;
/// How many reports may wait.
const WAITING: usize = 8000;
/// After how long somebody who was told to come back shall do so.
pub const COME_BACK: Duration = Duration::from_secs(15);

// A batch at its limits and one more report of the largest size can be read back.
const _: () = assert!(MOST_BYTES + 2 * farshore_shared::wire::STATUS_LIMIT < STATUS_LOG_LIMIT);

/// Why a report is not in the record.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotTaken {
    /// Too many wait.
    #[error("too many reports wait (limit {WAITING})")]
    TooMany,
    /// The record did not take it.
    #[error("appending reports to the record")]
    Objects(#[source] Arc<ObjectsError>),
    /// The writer ended: the process stops.
    #[error("the hub is stopping")]
    Stopping,
}

/// Appends reports. Clones share one log.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Waiting>,
    total: Arc<Total>,
}

/// Reports that have arrived and are not in the record yet, those of a PUT in flight included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queued {
    /// How many.
    pub reports: usize,
    /// Bytes of what sites have signed.
    pub bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    report: Report,
    done: Done,
}

/// Whom to tell how it ended.
#[derive(Debug)]
struct Done {
    tell: oneshot::Sender<Result<(), NotTaken>>,
    _place: Place,
}

/// The report counts as queued as long as this lives.
#[derive(Debug)]
struct Place {
    bytes: usize,
    total: Arc<Total>,
}

#[derive(Debug, Default)]
struct Total {
    reports: AtomicUsize,
    bytes: AtomicUsize,
}

impl Place {
    fn take(total: &Arc<Total>, bytes: usize) -> Self {
        total.reports.fetch_add(1, Ordering::Relaxed);
        total.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, total: Arc::clone(total) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.total.reports.fetch_sub(1, Ordering::Relaxed);
        self.total.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Writer {
    /// Starts a writer, which ends with its last clone. After a PUT a report waits so long for others, [`TOGETHER`]
    /// where many come.
    #[must_use]
    pub fn start(objects: Arc<dyn Objects>, gather: Duration) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(run(objects, waiting, gather));
        Self { queue, total: Arc::default() }
    }

    /// What is not in the record yet.
    #[must_use]
    pub fn queued(&self) -> Queued {
        let Total { reports, bytes } = &*self.total;
        Queued { reports: reports.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// Appends a report; when this returns, it is in the record.
    ///
    /// # Errors
    /// [`NotTaken`]; the report may be in the record nevertheless.
    pub async fn append(&self, report: Report) -> Result<(), NotTaken> {
        let (tell, written) = oneshot::channel();
        let done = Done { tell, _place: Place::take(&self.total, report.envelope.payload.len()) };
        self.queue.try_send(Waiting { report, done }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => NotTaken::TooMany,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Stopping,
        })?;
        written.await.unwrap_or(Err(NotTaken::Stopping))
    }
}

/// The writer's task.
async fn run(objects: Arc<dyn Objects>, mut queue: mpsc::Receiver<Waiting>, pause: Duration) {
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut last: Option<Instant> = None;
    while let Some(first) = queue.recv().await {
        if let Some(last) = last {
            gather(last, &queue, pause).await;
        }
        let permit = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
        let batch = collect(first, &mut queue);
        last = Some(Instant::now());
        let objects = Arc::clone(&objects);
        // Each ends with its PUT, and whoever waits for it is told.
        tokio::spawn(async move {
            let (log, waiting): (Vec<Report>, Vec<_>) =
                batch.into_iter().map(|Waiting { report, done }| (report, done)).unzip();
            let outcome = write(&*objects, StatusLog(log)).await;
            for done in waiting {
                // A site that has hung up reports again.
                let _ = done.tell.send(outcome.clone());
            }
            drop(permit);
        });
    }
}

/// Waits until it is worth another PUT. One that comes alone waits for nobody.
async fn gather(last: Instant, queue: &mpsc::Receiver<Waiting>, pause: Duration) {
    let mut until = last + APART;
    while until <= last + pause {
        tokio::time::sleep_until(until).await;
        if queue.len() >= FULL_SOON {
            return;
        }
        until += APART;
    }
}

fn collect(first: Waiting, queue: &mut mpsc::Receiver<Waiting>) -> Vec<Waiting> {
    let size = |waiting: &Waiting| waiting.report.envelope.payload.len();
    let mut bytes = size(&first);
    let mut batch = vec![first];
    while batch.len() < MOST_REPORTS && bytes < MOST_BYTES {
        let Ok(next) = queue.try_recv() else { break };
        bytes += size(&next);
        batch.push(next);
    }
    batch
}

async fn write(objects: &dyn Objects, log: StatusLog) -> Result<(), NotTaken> {
    // Thousands of reports take tens of milliseconds, in which nobody else would be answered.
    let encoded = tokio::task::spawn_blocking(move || Bytes::from(encode(&log))).await;
    let bytes = encoded.map_err(|_stopped| NotTaken::Stopping)?;
    let failed = |error: ObjectsError| NotTaken::Objects(Arc::new(error));
    loop {
        let key = record::status_log(Ulid::generate());
        match objects.put(&key, bytes.clone(), Condition::Absent).await.map_err(failed)? {
            PutOutcome::Stored(_) => return Ok(()),
            // Somebody else has that name: another one.
            PutOutcome::Conflict => {}
        }
    }
}

/// The bytes of a part of the log.
fn encode(log: &StatusLog) -> Vec<u8> {
    compress::pack(&serde_json::to_vec(log).expect("reports have string keys only"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::future::join_all;
    use tempfile::TempDir;
    use tokio::sync::Notify;

    use super::*;
    use crate::objects::Operation;
    use crate::objects::disk::Disk;
    use crate::objects::faulty::{Decision, Faulty, Steps};
    use crate::status::shard::tests::report;

    /// Counts PUTs, and holds or fails them.
    #[derive(Debug, Default)]
    struct Gate {
        puts: AtomicUsize,
        reached: Notify,
        go: Option<Notify>,
        fails: bool,
        /// The first so many PUTs meet another one.
        meets: usize,
    }

    #[async_trait]
    impl Steps for Gate {
        async fn before(&self, operation: Operation, _: &str) -> Decision {
            if operation == Operation::Put {
                if self.puts.fetch_add(1, Ordering::SeqCst) < self.meets {
                    return Decision::Refuse;
                }
                self.reached.notify_one();
                if let Some(go) = &self.go {
                    go.notified().await;
                }
            }
            if self.fails { Decision::Fail } else { Decision::Proceed }
        }
    }

    fn writer(gate: &Arc<Gate>) -> (TempDir, Arc<dyn Objects>, Writer) {
        let folder = TempDir::new().expect("a temporary folder");
        let disk: Arc<dyn Objects> = Arc::new(Disk::open(folder.path()).expect("an empty folder"));
        let through: Arc<dyn Objects> =
            Arc::new(Faulty::new(Arc::clone(&disk), Arc::clone(gate) as Arc<dyn Steps>));
        (folder, disk, Writer::start(through, TOGETHER))
    }

    async fn logged(objects: &dyn Objects) -> usize {
        let mut reports = 0;
        for listed in objects.list(record::STATUS_LOG, None, 100).await.expect("a disk") {
            let stored = objects.get(&listed.key, 1 << 30).await.expect("a disk").expect("listed");
            let json = compress::unpack(&stored.bytes, STATUS_LOG_LIMIT).expect("ours");
            reports += serde_json::from_slice::<StatusLog>(&json).expect("ours").0.len();
        }
        reports
    }

    #[tokio::test]
    async fn what_arrives_during_a_put_goes_together_in_the_next() {
        let gate = Arc::new(Gate { go: Some(Notify::new()), ..Gate::default() });
        let (_folder, disk, writer) = writer(&gate);
        let first = tokio::spawn({
            let writer = writer.clone();
            async move { writer.append(report("first", "s", 1, 1)).await }
        });
        gate.reached.notified().await;
        let names: Vec<String> = (0..5000).map(|n| format!("c-{n}")).collect();
        let others = join_all(names.iter().map(|name| writer.append(report(name, "s", 1, 1))));
        let go = async {
            loop {
                gate.go.as_ref().expect("it waits").notify_one();
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            taken = others => assert!(taken.iter().all(Result::is_ok)),
            () = go => {}
        }
        first.await.expect("no panic").expect("a disk");
        assert_eq!(writer.queued(), Queued::default(), "nothing waits any more");
        assert_eq!(logged(&*disk).await, 5001, "acknowledged is in the record");
        assert_eq!(gate.puts.load(Ordering::SeqCst), 4, "one alone, and three of at most 2,000");
    }

    #[tokio::test]
    async fn nobody_is_acknowledged_when_the_record_does_not_take_it() {
        let gate = Arc::new(Gate { fails: true, ..Gate::default() });
        let (_folder, disk, writer) = writer(&gate);
        let taken = join_all(["a", "b"].map(|name| writer.append(report(name, "s", 1, 1)))).await;
        assert!(taken.iter().all(|taken| matches!(taken, Err(NotTaken::Objects(_)))), "{taken:?}");
        assert_eq!(logged(&*disk).await, 0);
    }

    #[tokio::test]
    async fn a_report_whose_name_another_one_has_is_written_under_a_new_one() {
        let gate = Arc::new(Gate { meets: 3, ..Gate::default() });
        let (_folder, disk, writer) = writer(&gate);
        writer.append(report("a", "s", 1, 1)).await.expect("a disk");
        assert_eq!((logged(&*disk).await, gate.puts.load(Ordering::SeqCst)), (1, 4));
    }

    #[tokio::test]
    async fn what_waits_is_bounded() {
        let gate = Arc::new(Gate { go: Some(Notify::new()), ..Gate::default() });
        let (_folder, _disk, writer) = writer(&gate);
        let one = report("a", "s", 1, 1);
        let most = WAITING + IN_FLIGHT * MOST_REPORTS + 1;
        let mut waiting = Vec::new();
        let mut refused = false;
        for _ in 0..=most {
            let mut append = Box::pin(writer.append(one.clone()));
            // It is queued when it is polled first.
            match futures::poll!(append.as_mut()) {
                std::task::Poll::Ready(Err(NotTaken::TooMany)) => refused = true,
                std::task::Poll::Ready(other) => panic!("{other:?}"),
                std::task::Poll::Pending => waiting.push(append),
            }
        }
        assert!(refused, "more than {WAITING} never wait");
        let queued = writer.queued();
        assert_eq!(queued.reports, waiting.len(), "those that wait are counted, and no other");
        assert_eq!(queued.bytes, waiting.len() * one.envelope.payload.len());
    }

    #[tokio::test]
    async fn reports_that_come_one_by_one_share_a_put_and_the_first_waits_for_nobody() {
        let gate = Arc::new(Gate::default());
        let (_folder, _disk, writer) = writer(&gate);
        let began = Instant::now();
        writer.append(report("a", "s", 1, 1)).await.expect("a disk");
        assert!(began.elapsed() < TOGETHER, "it was alone");
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let mut sent = Vec::new();
        for _ in 0..75 {
            ticks.tick().await;
            let writer = writer.clone();
            sent.push(tokio::spawn(async move { writer.append(report("a", "s", 1, 1)).await }));
        }
        for taken in join_all(sent).await {
            taken.expect("no panic").expect("a disk");
        }
        let halves = usize::try_from(began.elapsed().as_millis() / TOGETHER.as_millis()).expect("few");
        let puts = gate.puts.load(Ordering::SeqCst);
        assert!(puts <= halves + 2, "{puts} PUTs in {halves} times {TOGETHER:?}");
    }

    #[tokio::test]
    async fn where_one_report_comes_after_the_other_none_waits_for_more() {
        let objects: Arc<dyn Objects> = Arc::new(crate::objects::memory::Memory::new());
        let (writer, began) = (Writer::start(objects, Duration::ZERO), Instant::now());
        for n in 0..10 {
            writer.append(report("a", "s", 1, n)).await.expect("memory");
        }
        assert!(began.elapsed() < 9 * APART, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn the_reports_of_a_fleet_wide_commit_cost_thousands_of_puts() {
        let gate = Arc::new(Gate::default());
        let (_folder, _disk, writer) = writer(&gate);
        let one = report("a", "s", 1, 1);
        // A hundredth of two million reports, in a hundredth of two minutes.
        let mut ticks = tokio::time::interval(Duration::from_millis(6));
        let mut sent = Vec::new();
        for _ in 0..200 {
            ticks.tick().await;
            sent.extend((0..100).map(|_| {
                let (writer, one) = (writer.clone(), one.clone());
                tokio::spawn(async move {
                    // A machine that has no time for it asks sites to come back, and they do.
                    while let Err(NotTaken::TooMany) = writer.append(one.clone()).await {
                        tokio::time::sleep(APART).await;
                    }
                })
            }));
        }
        for taken in join_all(sent).await {
            taken.expect("no panic");
        }
        let puts = gate.puts.load(Ordering::SeqCst);
        assert!(puts * 100 < 5000, "{puts} for a hundredth of the fleet");
    }
}
