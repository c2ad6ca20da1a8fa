//! The only way in which a test waits: for a condition, with a deadline, remembering the last "not yet".

use std::time::{Duration, Instant};

use super::KitError;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Looks again and again until `probe` returns `Ok`, and returns that value.
///
/// `probe` says in its `Err` what is not yet so; the last of them is in the error. A probe that hangs is cut off at
/// the deadline.
///
/// ```
/// # tokio_test(async {
/// use std::time::Duration;
/// let mut looks = 0;
/// let seen = farshore_chaos::kit::wait_for("the third look", Duration::from_secs(5), async || {
///     looks += 1;
///     if looks == 3 { Ok(looks) } else { Err(format!("look {looks}")) }
/// });
/// assert_eq!(seen.await.expect("it comes at once"), 3);
/// # });
/// # fn tokio_test(test: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test);
/// # }
/// ```
///
/// # Errors
/// [`KitError::NotYet`] at the deadline.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, KitError> {
    let end = tokio::time::Instant::from_std(Instant::now() + deadline);
    let mut last = "it was never looked at".to_owned();
    let mut pause = FIRST_PAUSE;
    loop {
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(not_yet)) => last = not_yet,
            Err(_elapsed) => last = format!("{last}; then one look took until the deadline"),
        }
        if tokio::time::Instant::now() + pause >= end {
            return Err(KitError::NotYet { what: what.to_owned(), waited: deadline, last });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_never_comes_is_reported_with_its_last_not_yet() {
        let mut looks = 0;
        let result = wait_for("rain", Duration::from_millis(40), async || {
            looks += 1;
            Err::<(), _>(format!("cloud {looks}"))
        });
        let error = result.await.expect_err("it never rains").to_string();
        assert!(error.contains("for rain") && error.contains("cloud"), "{error}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut_off_at_the_deadline() {
        let result = wait_for("an answer", Duration::from_millis(40), async || {
            std::future::pending::<()>().await;
            Ok(())
        });
        let error = result.await.expect_err("it never answers").to_string();
        assert!(error.contains("until the deadline"), "{error}");
    }
}
