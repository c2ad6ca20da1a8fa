//! Counts what a fetch receives and stops it at its limits.

use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Cause, GitUrl, SourceError};

/// What one fetch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may arrive, references and pack together.
    pub bytes: u64,
    /// How long nothing may arrive.
    pub idle: Duration,
    /// How long it may take altogether, so that a server that sends a byte now and then ends too.
    pub total: Duration,
}

impl Default for Limits {
    /// 1 GiB, 30 s without progress, 30 min altogether.
    fn default() -> Self {
        Self { bytes: 1 << 30, idle: Duration::from_secs(30), total: Duration::from_secs(1_800) }
    }
}

/// Why a fetch was stopped, as seen where the bytes arrive: it is known best there.
#[derive(Debug)]
pub(super) enum Stop {
    TooLarge,
    Stalled,
    Overdue,
    #[cfg_attr(not(feature = "git-http"), expect(dead_code, reason = "only the HTTP transport sees it"))]
    Unreachable(Cause),
    NotFound(String),
}

const NOT_READING: u64 = u64::MAX;

/// Counts the bytes of one fetch. Shared by whoever reads and whoever watches.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    started: Instant,
    bytes: AtomicU64,
    /// When the read that is under way began, in milliseconds since `started`; [`NOT_READING`]
    /// while what arrived is worked on, which is not the server's silence.
    reading: AtomicU64,
    stop: Mutex<Option<Stop>>,
}

impl Meter {
    pub(super) fn start(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            started: Instant::now(),
            bytes: AtomicU64::new(0),
            reading: AtomicU64::new(NOT_READING),
            stop: Mutex::new(None),
        })
    }

    #[cfg(feature = "git-http")]
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Remembers the first reason; what follows from it does not hide it.
    pub(super) fn stop(&self, stop: Stop) {
        self.stopped().get_or_insert(stop);
    }

    fn stopped(&self) -> MutexGuard<'_, Option<Stop>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(NOT_READING);
        self.reading.store(now, Ordering::Relaxed);
    }

    fn took(&self, bytes: usize) {
        self.bytes.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn end(&self) {
        self.reading.store(NOT_READING, Ordering::Relaxed);
    }

    /// How long until a limit is reached if nothing arrives; remembers the reason if it is zero.
    pub(super) fn left(&self) -> Duration {
        let elapsed = self.started.elapsed();
        let quiet = match self.reading.load(Ordering::Relaxed) {
            NOT_READING => Duration::ZERO,
            since => elapsed.saturating_sub(Duration::from_millis(since)),
        };
        let (idle, total) =
            (self.limits.idle.saturating_sub(quiet), self.limits.total.saturating_sub(elapsed));
        if total.is_zero() {
            self.stop(Stop::Overdue);
        } else if idle.is_zero() {
            self.stop(Stop::Stalled);
        }
        idle.min(total)
    }

    fn check(&self) -> io::Result<()> {
        if self.bytes.load(Ordering::Relaxed) > self.limits.bytes {
            self.stop(Stop::TooLarge);
        }
        if self.started.elapsed() > self.limits.total {
            self.stop(Stop::Overdue);
        }
        if self.stopped().is_some() { Err(io::Error::other("the fetch was stopped")) } else { Ok(()) }
    }

    /// The error of a fetch that ended with `cause`: the reason it was stopped, if it was.
    pub(super) fn explain(&self, url: &GitUrl, cause: Cause) -> SourceError {
        let (url, limits) = (url.clone(), self.limits);
        match self.stopped().take() {
            Some(Stop::TooLarge) => SourceError::TooLarge { url, limit: limits.bytes },
            Some(Stop::Stalled) => SourceError::Stalled { url, limit: limits.idle },
            Some(Stop::Overdue) => SourceError::Overdue { url, limit: limits.total },
            Some(Stop::Unreachable(source)) => SourceError::Unreachable { url, source },
            Some(Stop::NotFound(answer)) => SourceError::NotFound { url, answer },
            None => SourceError::BadAnswer { url, source: cause },
        }
    }
}

/// A reader that counts, and ends with an error at a limit.
pub(super) struct Metered<R> {
    inner: R,
    meter: Arc<Meter>,
    /// Tells the meter what an error of the inner reader means.
    judge: fn(&Meter, io::Error) -> io::Error,
}

impl<R> Metered<R> {
    pub(super) fn new(inner: R, meter: Arc<Meter>, judge: fn(&Meter, io::Error) -> io::Error) -> Self {
        Self { inner, meter, judge }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.meter.check()?;
        self.meter.begin();
        let taken = self.inner.read(buffer);
        self.meter.end();
        let taken = taken.map_err(|error| (self.judge)(&self.meter, error))?;
        self.meter.took(taken);
        Ok(taken)
    }
}

impl<R: BufRead> BufRead for Metered<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.meter.check()?;
        let (meter, judge) = (&self.meter, self.judge);
        meter.begin();
        let filled = self.inner.fill_buf();
        meter.end();
        filled.map_err(|error| judge(meter, error))
    }

    fn consume(&mut self, taken: usize) {
        self.meter.took(taken);
        self.inner.consume(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes: u64, idle: Duration, total: Duration) -> Limits {
        Limits { bytes, idle, total }
    }

    fn url() -> GitUrl {
        "https://git.example/a".parse().expect("a URL")
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_fetch_ends_at_its_limit_of_bytes() {
        let meter = Meter::start(limits(1_000, LONG, LONG));
        let mut reader = Metered::new(io::repeat(7), meter.clone(), |_, error| error);
        let error = io::copy(&mut reader, &mut io::sink()).expect_err("a limit");
        let error = meter.explain(&url(), error.into());
        assert!(matches!(error, SourceError::TooLarge { limit: 1_000, .. }), "{error}");
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }

    #[test]
    fn a_fetch_ends_at_its_limit_of_time_although_bytes_arrive() {
        let meter = Meter::start(limits(u64::MAX, LONG, Duration::ZERO));
        let mut reader = Metered::new(io::repeat(7), meter.clone(), |_, error| error);
        let error = io::copy(&mut reader, &mut io::sink()).expect_err("a limit");
        assert!(matches!(meter.explain(&url(), error.into()), SourceError::Overdue { .. }));
    }

    #[test]
    fn silence_is_told_apart_from_slowness() {
        let meter = Meter::start(limits(u64::MAX, Duration::ZERO, LONG));
        meter.begin();
        assert!(meter.left().is_zero());
        assert!(matches!(meter.explain(&url(), "cut".into()), SourceError::Stalled { .. }));
    }
}
