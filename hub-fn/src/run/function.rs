//! A hub as a Lambda function: events one by one, and no loop beside them.
//!
//! `--role serve` answers the requests of a function URL or an HTTP API. `--role publish` does one bounded
//! step of due work for each event, whatever the event says: a schedule, or a notice that a site asks to
//! enrol.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farshore_shared::exit::{Exit, chain};
use lambda_http::lambda_runtime::{self, LambdaEvent};
use lambda_http::service_fn;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{error, info};

use super::flushing::FLUSH;
use super::stepping::{Stepper, tell};
use super::{House, HubError};
use crate::config::{BadConfig, Config, Role};
use crate::handlers::{Hub, Settings};
use crate::lambda;
use crate::waiting::WakeLimits;

/// The share of an event's time that a step may take.
const STEP_SHARE: f64 = 0.8;
/// What it takes at least, however little is left: a step that is cut is made good by the next one.
const STEP_LEAST: Duration = Duration::from_secs(1);

/// What a function cannot be told.
pub(super) fn check(config: &Config) -> Result<(), BadConfig> {
    let mut mistakes = Vec::new();
    if config.args.role == Role::All {
        mistakes.push("--role all cannot be a Lambda function: make one of serve and one of publish".into());
    }
    if config.args.objects.is_none() {
        mistakes.push("a Lambda function needs --objects: its disk is its own and is lost".into());
    }
    if mistakes.is_empty() { Ok(()) } else { Err(BadConfig(mistakes)) }
}

/// Takes events until Lambda ends the process.
pub(super) async fn run(house: House) -> Result<Exit, HubError> {
    let publishes = house.config.args.role.publishes();
    info!(publishes, "taking events from Lambda");
    if publishes { publish(house).await } else { serve(house).await }
}

async fn serve(house: House) -> Result<Exit, HubError> {
    let hub = Hub::new(house.view(), Arc::clone(&house.index), settings(&house.config));
    let flusher = house.flusher(&hub);
    let flushed = Arc::new(Mutex::new(Instant::now()));
    let answer = service_fn(move |request| {
        let (hub, flusher, flushed) = (hub.clone(), flusher.clone(), Arc::clone(&flushed));
        async move {
            let response = lambda::answer(&hub, request).await;
            // After the answer nothing runs: what shall be written is written before it.
            let mut flushed = flushed.lock().await;
            if flushed.elapsed() >= FLUSH {
                flusher.flush().await;
                *flushed = Instant::now();
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    lambda_http::run(answer).await.map(|()| Exit::Ok).map_err(HubError::Lambda)
}

/// Nobody may wait, neither for news nor for other reports: a function that holds a request is paid for, and answers
/// nobody else.
fn settings(config: &Config) -> Settings {
    let wake = WakeLimits { waiting: 0, rate: 1 };
    Settings { wake, gather: Duration::ZERO, ..config.settings() }
}

async fn publish(house: House) -> Result<Exit, HubError> {
    let stepper = Arc::new(Mutex::new(house.stepper(house.publisher().await?)));
    let step = service_fn(move |event: LambdaEvent<Value>| {
        let stepper = Arc::clone(&stepper);
        async move { step(&mut *stepper.lock().await, time_of(event.context.deadline())).await }
    });
    lambda_runtime::run(step).await.map(|()| Exit::Ok).map_err(HubError::Lambda)
}

/// What a step may take of an event that has time until then: enough is left to answer it.
fn time_of(deadline: SystemTime) -> Duration {
    let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
    left.mul_f64(STEP_SHARE).max(STEP_LEAST)
}

/// One step. A step that fails is a failed event, which Lambda counts and repeats.
async fn step(stepper: &mut Stepper, time: Duration) -> Result<Value, lambda_http::Error> {
    match stepper.step(time).await {
        Ok(report) => {
            tell(&report);
            let held: Vec<&str> = report.held.iter().map(|held| held.change.as_str()).collect();
            Ok(json!({ "published": report.published, "held": held, "failed": report.failed }))
        }
        Err(failure) => {
            error!(error = %chain(&failure), "publishing failed");
            Err(failure.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        hub: crate::config::HubArgs,
    }

    fn config(line: &str) -> Config {
        let line = Line::try_parse_from(line.split(' ')).expect("a command line");
        Config::check(line.hub).expect("right for a server")
    }

    #[test]
    fn nobody_waits_in_a_function() {
        let settings = settings(&config("hub --data /tmp/x --role serve --objects s3://fleet"));
        assert_eq!((settings.wake.waiting, settings.gather), (0, Duration::ZERO));
    }

    fn mistakes(line: &str) -> String {
        let config = config(line);
        check(&config).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_function_that_would_forget_its_record_is_refused_and_so_is_one_that_is_two() {
        let all = mistakes("hub --data /tmp/x");
        assert!(all.contains("--role all") && all.contains("needs --objects"), "{all}");
        assert_eq!(mistakes("hub --data /tmp/x --role serve --objects s3://fleet"), "");
    }
}
