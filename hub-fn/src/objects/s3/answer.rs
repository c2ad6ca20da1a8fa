//! What an answer of an S3 server means to the record.

use std::error::Error;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use crate::objects::{ObjectsError, Operation};

/// What a failed request says about its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// There is no such object.
    Absent,
    /// The condition did not hold.
    Conflict,
    /// The range begins beyond the end.
    Unsatisfiable,
    /// Anything else.
    Other,
}

/// An error that the server answered, without the request's and the answer's other details.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {status} ({code}: {message})")]
struct Answer {
    status: u16,
    code: String,
    message: String,
}

/// A bucket that is not there is not an object that is not there: only the codes tell them apart.
pub(super) fn meaning<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Meaning {
    let SdkError::ServiceError(answer) = error else {
        return Meaning::Other;
    };
    match (answer.raw().status().as_u16(), answer.err().code()) {
        // The answer to HEAD has no body, and therefore no code but its status.
        (404, Some("NoSuchKey" | "NotFound") | None) => Meaning::Absent,
        (412, _) | (409, Some("ConditionalRequestConflict")) => Meaning::Conflict,
        (416, _) => Meaning::Unsatisfiable,
        _ => Meaning::Other,
    }
}

/// The error of a failed request: unreachable when asking again may help, refused otherwise.
pub(super) fn failed<E>(operation: Operation, subject: &str, error: SdkError<E, HttpResponse>) -> ObjectsError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let key = subject.to_owned();
    match error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let text = |text: Option<&str>| text.unwrap_or("no reason given").chars().take(300).collect();
            let code: String = text(answer.err().code());
            let source = Answer { status, message: text(answer.err().message()), code: code.clone() };
            let is_busy = matches!(status, 500..=599 | 429)
                || matches!(code.as_str(), "RequestTimeout" | "OperationAborted" | "ExpiredToken");
            if is_busy {
                return ObjectsError::Unreachable { operation, key, source: source.into() };
            }
            ObjectsError::Refused { operation, key, source: source.into() }
        }
        SdkError::ConstructionFailure(_) => {
            ObjectsError::Refused { operation, key, source: source_of(error) }
        }
        _ => ObjectsError::Unreachable { operation, key, source: source_of(error) },
    }
}

fn source_of<E>(error: SdkError<E, HttpResponse>) -> Box<dyn Error + Send + Sync>
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    error.into_source().unwrap_or_else(|error| error.to_string().into())
}
